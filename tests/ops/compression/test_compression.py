"""Algorithm 1 keeps the promises of its lemmas, whose constants are explicit here."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from mindgap.core import Subject, Undefined
from mindgap.nets import MLP
from mindgap.ops.compression.cushions import cushions
from mindgap.ops.compression.dense import DenseNet, dense_net
from mindgap.ops.compression.project import (
    Plan,
    compressed,
    lowest,
    matrix_project,
    plan_of,
    projections_needed,
    promised_error,
    rounded,
    smoothness,
)


def random_net(seed: int, widths: tuple[int, ...], bias: bool = True) -> DenseNet:
    random = torch.Generator().manual_seed(seed)
    pairs = list(zip(widths[1:], widths[:-1], strict=True))
    draw = lambda *shape: torch.randn(*shape, generator=random, dtype=torch.float64)  # noqa: E731
    return DenseNet(
        tuple(draw(*pair) / pair[1] ** 0.5 for pair in pairs),
        tuple(draw(out) * 0.3 if bias else None for out, _ in pairs),
        (0.0,) * (len(pairs) - 1),
    )


def some_inputs(count: int, width: int) -> Tensor:
    random = torch.Generator().manual_seed(9)
    return torch.randn(count, width, generator=random, dtype=torch.float64)


def test_products_of_projected_matrices_are_right_up_to_epsilon() -> None:
    """The tail bound with its constants: at most a share η of products may be off by more than ε."""
    epsilon, failure, draws = 0.4, 0.05, 400
    matrix = some_inputs(3, 4)
    u, v = some_inputs(2, 3)[0], some_inputs(2, 4)[1]
    count = projections_needed(epsilon, failure)
    size = epsilon * float(matrix.norm() * u.norm() * v.norm())
    off = [
        abs(float(u @ (matrix_project(matrix, count, seed) - matrix) @ v)) > size
        for seed in range(draws)
    ]
    assert sum(off) / draws <= failure
    few = [
        abs(float(u @ (matrix_project(matrix, 5, seed) - matrix) @ v)) > size
        for seed in range(draws)
    ]
    assert sum(few) / draws > failure  # so the test can tell a wrong constant


def test_the_published_number_of_projections_is_too_small() -> None:
    """ln(1/η)/ε², of Algorithm 1 as printed: the product may be off five times as often as η."""
    epsilon, failure, draws = 0.5, 0.02, 4000
    count = math.ceil(math.log(1 / failure) / epsilon**2)
    source = torch.Generator().manual_seed(0)
    u, v = some_inputs(2, 6)
    products = (u[:, None] * v / (u.norm() * v.norm())).flatten()  # A is uvᵀ, of norm one
    for k, low, high in (
        (count, 5 * failure, 1.0),
        (projections_needed(epsilon, failure), 0.0, failure),
    ):
        signs = 2.0 * torch.randint(2, (draws, k, len(products)), generator=source) - 1
        found = (signs @ products.float()).square().mean(1)
        assert low <= float(((found - 1).abs() >= epsilon).double().mean()) <= high


def test_projection_is_unbiased_with_the_known_variance() -> None:
    """Var Âₑ = (‖A‖² + Aₑ² − 2Aₑ²)/k: every other entry adds its square, the own one is exact."""
    matrix, count = some_inputs(2, 3), 10
    draws = torch.stack([matrix_project(matrix, count, seed) for seed in range(4000)])
    variance = (matrix.square().sum() - matrix.square()) / count
    assert torch.allclose(draws.mean(0), matrix, atol=5 * math.sqrt(float(variance.max()) / 4000))
    assert torch.allclose(draws.var(0), variance, rtol=0.15)


@given(st.floats(0.01, 1.0), st.floats(1e-9, 0.5))
@settings(max_examples=50, deadline=None)
def test_promise_inverts_the_number_of_projections(epsilon: float, failure: float) -> None:
    count = projections_needed(epsilon, failure)
    assert promised_error(count, failure) <= epsilon + 1e-9
    assert promised_error(max(1, count - 2), failure) > epsilon * (1 - 1e-2) - 1e-6


def test_a_net_with_the_promised_projections_is_right_up_to_epsilon() -> None:
    """Theorem 4.1 end to end, on a net so small that its constants can be paid."""
    net, inputs, epsilon = random_net(1, (3, 3, 2), bias=False), some_inputs(20, 3), 0.9
    found = cushions(net, inputs)
    good = found.minimal.amin(0) * found.layer.amin(0)
    inputs = inputs[(good >= good.median()) & (found.contraction[0] < 1.5)]  # a clean sample
    plan = plan_of(cushions(net, inputs), 0.0, 0.05)
    counts = plan.counts(epsilon)
    assert plan.promise(counts) == pytest.approx(epsilon, rel=1e-2)
    other = compressed(net, counts, seed=3)
    seen = net.run(inputs)
    away = (other.run(inputs).left[-1] - seen.left[-1]).norm(dim=1)
    assert float(smoothness(net, other, seen).min()) >= 3 * net.depth
    assert bool((away <= epsilon * seen.left[-1].norm(dim=1)).all())


def test_too_few_projections_promise_nothing() -> None:
    plan = Plan([0.5, 0.5], [0.5, 0.5], 1.0, 0.01)
    assert plan.promise([10, 10]) == math.inf


@pytest.mark.parametrize("bias", [True, False])
def test_cushions_equal_jacobians_of_automatic_differentiation(bias: bool) -> None:
    net, inputs = random_net(0, (4, 6, 5, 4, 3), bias), some_inputs(7, 4)
    net = dataclasses.replace(net, slopes=(0.0, 0.1, 0.0))
    found, seen = cushions(net, inputs), net.run(inputs)
    for (first, second), row in found.interlayer.items():
        for place in range(len(inputs)):
            x = seen.left[first - 1][place]
            through = lambda x, i=first, j=second: net.after(i - 1, x[None])[j - i - 1][0]  # noqa: E731
            slope = torch.autograd.functional.jacobian(through, x)
            wanted = seen.left[second - 1][place].norm() / (slope.norm() * x.norm())
            assert float(row[place]) == pytest.approx(float(wanted), rel=1e-9)
            if not bias:  # the paper's definition, in which J x takes the place of the output
                plain = (slope @ x).norm() / (slope.norm() * x.norm())
                assert float(row[place]) == pytest.approx(float(plain), rel=1e-9)
    assert float(found.minimal[0].max()) <= 6**-0.5 + 1e-12


def test_smoothness_is_the_largest_number_that_holds() -> None:
    net, inputs = random_net(2, (4, 8, 6, 3)), some_inputs(5, 4)
    other, seen = compressed(net, (20, 30, 20)), net.run(inputs)
    rho = smoothness(net, other, seen)
    for place in range(len(inputs)):
        ratios, entered = [], inputs[place : place + 1]
        for first in range(2):
            left = other.layer(first, entered)
            x, noise = seen.left[first][place], left[0] - seen.left[first][place]
            for later in range(first + 1, 3):
                through = lambda x, i=first, j=later: net.after(i, x[None])[j - i - 1][0]  # noqa: E731
                slope = torch.autograd.functional.jacobian(through, x)
                bent = through(x + noise) - through(x) - slope @ noise
                end = seen.left[later][place]
                if bent.norm() > 1e-9:
                    ratios.append(float(noise.norm() * end.norm() / (bent.norm() * x.norm())))
            entered = net.activate(first, left)[0]
        assert float(rho[place]) == pytest.approx(min(ratios, default=math.inf), rel=1e-6)


def test_a_linear_net_is_smooth_without_limit() -> None:
    net = dataclasses.replace(random_net(0, (3, 4, 2)), slopes=(1.0,))
    seen = net.run(some_inputs(4, 3))
    assert bool(torch.isinf(smoothness(net, compressed(net, (9, 9)), seen)).all())


def test_reads_batch_normalization_and_refuses_convolutions() -> None:
    x = some_inputs(16, 4).float()
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    model.train()(x)
    subject = Subject(model, "mse", (x, x[:, :2]))
    outputs = dense_net(subject).run(x.double()).left[-1]
    assert torch.allclose(outputs.float(), subject.outputs(), atol=1e-5)
    images = torch.zeros(4, 1, 6, 6)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    with pytest.raises(Undefined, match="convolution"):
        dense_net(Subject(net, "cross_entropy", (images, torch.tensor([0, 1, 0, 1]))))
    relu_last = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    with pytest.raises(Undefined, match="dense layer"):
        dense_net(Subject(relu_last, "mse", (x, x[:, :2])))


def test_linear_layers_without_activation_count_as_slope_one() -> None:
    x = some_inputs(4, 4).float()
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    assert dense_net(Subject(model, "mse", (x, x[:, :2]))).slopes == (1.0, 0.0)


def test_rounding_keeps_a_finite_number_of_values() -> None:
    values = some_inputs(1, 500)[0]
    few = rounded(values, 8)
    assert len(few.unique()) <= 8
    assert float((few - values).abs().max()) <= float(values.abs().max()) / 7 + 1e-6
    exact, coarse = (matrix_project(some_inputs(2, 3), 50, levels=r) for r in (None, 256))
    assert torch.allclose(exact, coarse, atol=0.05)


def test_quantiles_are_samples() -> None:
    values = torch.tensor([[5.0, 1.0, 3.0, 2.0, 4.0]])
    assert [float(lowest(values, q)) for q in (0.0, 0.2, 0.21, 0.5)] == [1.0, 1.0, 2.0, 3.0]


def test_a_perceptron_is_read_with_its_flattening() -> None:
    images = torch.rand(4, 1, 2, 2)
    net = dense_net(Subject(MLP((4, 3, 2)), "cross_entropy", (images, torch.tensor([0, 1, 0, 1]))))
    assert net.depth == 2
