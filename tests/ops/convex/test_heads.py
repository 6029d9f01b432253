"""Exact heads against scikit-learn, scipy and closed forms, in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from mindgap.core.errors import InputError
from mindgap.ops.convex import curvature
from mindgap.ops.convex.heads import solve_heads
from mindgap.ops.convex.squares import basis_of


def problem(
    samples: int = 200, width: int = 5, classes: int = 4, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Features of unequal scale far from zero, noisy classes, weights from 1 to 40."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(samples, width, generator=g, dtype=torch.float64)
    y = (z @ torch.randn(width, classes, generator=g, dtype=torch.float64) * 0.7).add(
        torch.randn(samples, classes, generator=g, dtype=torch.float64)
    )
    w = 1 + 39 * torch.rand(samples, generator=g, dtype=torch.float64)
    return z * torch.logspace(-1, 1, width) + 3, y.argmax(1), w


def value(
    weight: Tensor, bias: Tensor | float, x: Tensor, y: Tensor, w: Tensor, l2: float
) -> Tensor:
    losses = F.cross_entropy(x @ weight.T + bias, y, reduction="none")
    return (w * losses).sum() / w.sum() + l2 / 2 * weight.square().sum()


@pytest.mark.parametrize("l2", [1e-1, 1e-3, 1e-6])
def test_softmax_equals_scikit_learn(l2: float) -> None:
    x, y, w = problem()
    found = solve_heads("softmax", x, y, w, l2=l2, tolerance=1e-12)
    model = LogisticRegression(
        C=1 / (l2 * float(w.sum())), tol=1e-10, max_iter=2000, solver="newton-cg"
    )
    model.fit(x.numpy(), y.numpy(), sample_weight=w.numpy())
    assert bool(found.converged.all())
    np.testing.assert_allclose(found.weight[0].numpy(), model.coef_, rtol=1e-6, atol=1e-6)
    bias = found.bias[0].numpy()
    np.testing.assert_allclose(
        bias - bias.mean(), model.intercept_ - model.intercept_.mean(), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("bias", [True, False])
def test_gradient_is_zero_in_the_users_own_coordinates(bias: bool) -> None:
    x, y, w = problem()
    found = solve_heads("softmax", x, y, w, l2=1e-4, bias=bias, tolerance=1e-12)
    weight = found.weight[0].clone().requires_grad_()
    shift = found.bias[0].clone().requires_grad_() if bias else None
    loss = value(weight, 0.0 if shift is None else shift, x, y, w, 1e-4)
    for gradient in torch.autograd.grad(loss, [weight] if shift is None else [weight, shift]):
        assert float(gradient.abs().max()) < 1e-9


def test_many_weightings_at_once_equal_one_at_a_time() -> None:
    x, y, _ = problem()
    weights = 1 + 20 * torch.rand(
        7, len(x), dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    together = solve_heads("softmax", x, y, weights, tolerance=1e-12)
    tight = solve_heads("softmax", x, y, weights, tolerance=1e-12, memory=1)
    for k, row in enumerate(weights):
        alone = solve_heads("softmax", x, y, row, tolerance=1e-12)
        torch.testing.assert_close(together.weight[k], alone.weight[0], rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(tight.weight[k], alone.weight[0], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(together.outputs(x)[3], x @ together.weight[3].T + together.bias[3])


@pytest.mark.parametrize(("dense", "blocks"), [(0, 2**25), (0, 0)])
def test_blocks_and_diagonal_find_the_same_optimum(
    dense: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, w = problem()
    whole = solve_heads("softmax", x, y, w, l2=1e-3, tolerance=1e-11)
    monkeypatch.setattr(curvature, "DENSE", dense)
    monkeypatch.setattr(curvature, "BLOCKS", blocks)
    other = solve_heads("softmax", x, y, w, l2=1e-3, tolerance=1e-11)
    assert bool(other.converged.all())
    torch.testing.assert_close(other.weight, whole.weight, rtol=1e-6, atol=1e-7)


def test_where_it_starts_does_not_matter() -> None:
    x, y, w = problem()
    start = torch.randn(4, 5), torch.randn(4)
    near, far = (solve_heads("softmax", x, y, w, start=s, tolerance=1e-12) for s in (start, None))
    torch.testing.assert_close(near.weight, far.weight, rtol=1e-6, atol=1e-8)


def test_an_offset_moves_the_bias_alone() -> None:
    x, y, w = problem()
    near, far = (solve_heads("softmax", z, y, w, l2=1e-3, tolerance=1e-11) for z in (x, x + 1e4))
    torch.testing.assert_close(near.weight, far.weight, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(near.outputs(x), far.outputs(x + 1e4), rtol=1e-6, atol=1e-6)


def test_copied_and_dead_features_share_and_get_nothing() -> None:
    x, y, w = problem()
    padded = torch.cat([x, x[:, :1], torch.full_like(x[:, :2], 7.0)], 1)
    found = solve_heads("softmax", padded, y, w, l2=1e-4, tolerance=1e-11)
    torch.testing.assert_close(found.weight[0, :, 0], found.weight[0, :, 5])
    assert float(found.weight[0, :, 6:].abs().max()) < 1e-9


def test_a_class_that_never_occurs_gets_no_probability() -> None:
    x, y, w = problem()
    found = solve_heads("softmax", x, y, w, outputs=6)
    assert bool(found.converged.all())
    assert found.weight.shape == (1, 6, 5)
    assert float(found.outputs(x)[0].softmax(1)[:, 4:].max()) < 1e-3


def test_separable_classes_have_an_optimum_with_a_penalty_and_are_refused_without() -> None:
    x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    y = torch.tensor([0, 0, 1, 1])
    assert bool(solve_heads("softmax", x, y).converged.all())
    with pytest.raises(InputError, match="l2 must be above 0"):
        solve_heads("softmax", x, y, l2=0)


def test_a_sample_of_weight_zero_does_not_count() -> None:
    x, y, w = problem()
    w[:50] = 0
    whole = solve_heads("softmax", x, y, w, tolerance=1e-12)
    part = solve_heads("softmax", x[50:], y[50:], w[50:], outputs=4, tolerance=1e-12)
    torch.testing.assert_close(whole.weight, part.weight, rtol=1e-5, atol=1e-7)


def test_weighting_twice_is_repeating() -> None:
    x, y, _ = problem()
    twice = torch.ones(len(x)).double()
    twice[:30] = 2
    heavy = solve_heads("softmax", x, y, twice, tolerance=1e-12)
    longer = solve_heads("softmax", torch.cat([x, x[:30]]), torch.cat([y, y[:30]]), tolerance=1e-12)
    torch.testing.assert_close(heavy.weight, longer.weight, rtol=1e-6, atol=1e-8)


def test_logistic_equals_scipy() -> None:
    x, y, w = problem(width=3)
    target = torch.stack([(y == 0).double(), (y > 1).double()], 1)
    found = solve_heads("logistic", x, target, w, l2=1e-3, tolerance=1e-12)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        head = torch.tensor(flat.reshape(2, 4), requires_grad=True)
        bce = F.binary_cross_entropy_with_logits(
            x @ head[:, :3].T + head[:, 3], target, reduction="none"
        ).mean(1)
        total = (w * bce).sum() / w.sum() + 1e-3 / 2 * head[:, :3].square().sum()
        return float(total.detach()), torch.autograd.grad(total, head)[0].flatten().numpy()

    best = minimize(
        loss, np.zeros(8), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000}
    )
    reference = torch.from_numpy(best.x).view(2, 4)
    torch.testing.assert_close(found.weight[0], reference[:, :3], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.bias[0], reference[:, 3], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("heads", [1, 30])
@pytest.mark.parametrize("bias", [True, False])
def test_squares_equal_the_normal_equations(heads: int, bias: bool) -> None:
    x, _, _ = problem()
    g = torch.Generator().manual_seed(3)
    y = torch.randn(len(x), 2, generator=g, dtype=torch.float64) + x[:, :2]
    weights = 1 + 99 * torch.rand(heads, len(x), generator=g, dtype=torch.float64)
    for l2 in (0.0, 0.3):
        found = solve_heads("squares", x, y, weights, l2=l2, bias=bias)
        for k, w in enumerate(weights / weights.sum(1, keepdim=True)):
            rows = torch.cat([x, torch.ones(len(x), 1)], 1).double() if bias else x
            penalty = torch.ones(rows.shape[1]).double()
            penalty[5:] = 0
            matrix = rows.T @ (rows * w[:, None]) + l2 * torch.diag(
                penalty
            )  # two outputs: λ · 2 / 2
            reference = torch.linalg.solve(matrix, rows.T @ (y * w[:, None])).T
            torch.testing.assert_close(found.weight[k], reference[:, :5], rtol=1e-8, atol=1e-9)
            if bias:
                torch.testing.assert_close(found.bias[k], reference[:, 5], rtol=1e-8, atol=1e-8)
        assert float(found.gradient_norm.max()) < 1e-10


def test_squares_of_badly_conditioned_features_equal_lstsq() -> None:
    x = torch.linspace(1e4, 1e4 + 1, 60, dtype=torch.float64)[:, None] ** torch.arange(1, 3) / 1e4
    y, w = x[:, 0].sin(), torch.rand(60, generator=torch.Generator().manual_seed(0)).double() + 0.1
    rows = torch.cat([x - x.mean(0), torch.ones(60, 1)], 1).double()
    best = np.linalg.lstsq((rows * w.sqrt()[:, None]).numpy(), (y * w.sqrt()).numpy(), rcond=1e-15)[
        0
    ]
    found = solve_heads("squares", x, y, w, l2=0)
    np.testing.assert_allclose(found.outputs(x)[0, :, 0], rows.numpy() @ best, rtol=1e-6, atol=1e-6)


def test_squares_with_fewer_samples_than_features_fit_and_stay_small() -> None:
    x, _, _ = problem(samples=4, width=9)
    y = torch.arange(4.0)
    weights = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    found = solve_heads("squares", x, y, weights, l2=0)
    torch.testing.assert_close(found.outputs(x)[0, :, 0], y.double(), atol=1e-8, rtol=0)
    torch.testing.assert_close(found.outputs(x)[1, :2, 0], y[:2].double(), atol=1e-8, rtol=0)
    assert bool(torch.isfinite(found.weight).all())


def test_basis_takes_a_head_in_and_out_again() -> None:
    x, _, _ = problem()
    basis, weight, bias = basis_of(x), torch.randn(3, 5).double(), torch.randn(3).double()
    back, shift = basis.outward(basis.inward(weight, bias))
    torch.testing.assert_close(back, weight)
    torch.testing.assert_close(shift, bias)
    coordinates = basis.inward(weight, bias)
    torch.testing.assert_close((basis.penalty * coordinates.square()).sum(), weight.square().sum())
    torch.testing.assert_close(basis.rows @ coordinates.T, x @ weight.T + bias)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"features": torch.zeros(3, 2, 2)}, "features must be a table"),
        ({"features": torch.full((3, 2), torch.nan)}, "features must be finite"),
        ({"target": torch.tensor([0, 1])}, "one entry for each of the 3 samples, got 2"),
        ({"weights": torch.tensor([1.0, -1.0, 1.0])}, "of at least 0"),
        ({"weights": torch.ones(2)}, "weights must be 3 finite numbers"),
        ({"weights": torch.zeros(3)}, "not all be zero"),
        ({"outputs": 1}, "class numbers from 0 to 0, got 0 to 1"),
        ({"l2": -1.0}, "l2 must be a number of at least 0"),
    ],
)
def test_says_what_is_wrong(arguments: dict[str, object], words: str) -> None:
    good = {"features": torch.eye(3)[:, :2], "target": torch.tensor([0, 1, 1])}
    with pytest.raises(InputError, match=words):
        solve_heads("softmax", **{**good, **arguments})


def test_soft_labels_are_refused() -> None:
    with pytest.raises(InputError, match="labels 0 or 1"):
        solve_heads("logistic", torch.eye(3), torch.tensor([0.0, 0.5, 1.0]))
