"""Leverages and removal shifts against dense linear algebra and against leaving out in closed form."""

import pytest
import torch
from cases import CASES

from mindgap.core import InputError, Subject
from mindgap.ops.curvature import influence
from mindgap.ops.curvature.flat_loss import FlatLoss

DAMPINGS = [0.001, 0.1]


def brute_force(subject: Subject, damping: float) -> tuple[torch.Tensor, ...]:
    """Jacobians by autograd, one output of one sample at a time; leverages by a dense inverse."""
    weights = list(subject.model.parameters())
    rows, gradients, hessians = [], [], []
    for place in range(len(subject.train)):
        batch = subject.train.take(torch.tensor([place]))
        output = subject.model(*batch.inputs)[0]
        parts = [torch.autograd.grad(one, weights, retain_graph=True) for one in output]
        rows.append(torch.stack([torch.cat([p.flatten() for p in part]) for part in parts]))
        target = subject.targets("train")[place][None]

        def loss(o: torch.Tensor, target: torch.Tensor = target) -> torch.Tensor:
            return subject.loss(o[None], target).sum()

        gradients.append(torch.autograd.functional.jacobian(loss, output.detach()))
        hessians.append(torch.autograd.functional.hessian(loss, output.detach()))
    J, r, H = torch.stack(rows), torch.stack(gradients), torch.stack(hessians)
    A = torch.einsum("nap,nab,nbq->pq", J, H, J)
    A += len(J) * damping * torch.eye(len(A), dtype=A.dtype)
    return r, H, J @ torch.linalg.inv(A) @ J.transpose(1, 2)


@pytest.mark.parametrize("case", ["mlp_classes", "deep_classes", "one_input", "multilabel"])
@pytest.mark.parametrize("side", ["weights", "outputs"])
def test_leverages_equal_dense_linear_algebra(case: str, side: str) -> None:
    subject = CASES[case](torch.float64)
    rows, count = influence.jacobian_rows(subject)
    gradient, curvature = influence.output_derivatives(FlatLoss(subject))
    if side == "outputs":
        count = influence.LARGEST + 1  # more weights than it decomposes
    found = influence.leverages(rows, count, curvature, DAMPINGS)
    for leverage, damping in zip(found, DAMPINGS, strict=True):
        r, H, L = brute_force(subject, damping)
        assert torch.allclose(gradient, r, atol=1e-10)
        assert torch.allclose(curvature, H, atol=1e-10)
        assert torch.allclose(leverage, L, rtol=1e-8, atol=1e-10)


def test_removal_is_exact_for_ridge_regression() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=random, dtype=torch.float64)
    y = torch.randn(12, 1, generator=random, dtype=torch.float64)
    ridge = 12 * 0.05

    def solved(keep: torch.Tensor) -> torch.Tensor:
        A = 2 * x[keep].T @ x[keep] + ridge * torch.eye(3, dtype=torch.float64)
        return torch.linalg.solve(A, 2 * x[keep].T @ y[keep])

    model = torch.nn.Linear(3, 1, bias=False, dtype=torch.float64)
    model.weight.data = solved(torch.ones(12, dtype=torch.bool)).T.clone()
    subject = Subject(model, "mse", (x, y))
    gradient, curvature = influence.output_derivatives(FlatLoss(subject))
    for make in (influence.jacobian_rows, influence.head_rows):
        (leverage,) = influence.leverages(*make(subject), curvature, [0.05])
        shifts = influence.removal_shifts(leverage, curvature, gradient)
        plain = influence.removal_shifts(leverage, curvature, gradient, corrected=False)
        for place in range(12):
            moved = x[place] @ solved(torch.arange(12) != place)
            assert subject.outputs("train")[place] + shifts[place] == pytest.approx(float(moved))
        assert (plain.abs() < shifts.abs()).all()


def test_jacobian_of_the_head_is_a_part_of_that_of_all_weights() -> None:
    subject = CASES["mlp_classes"](torch.float64)
    every = influence.jacobian_rows(subject)[0](torch.arange(5))
    head = influence.head_rows(subject)[0](torch.arange(5))
    *_, weight, bias = [p.numel() for p in subject.model.parameters()]
    last = every[..., -(weight + bias) :]
    ours = head.view(5, 3, 3, 7)
    assert torch.allclose(last[..., :weight].view(5, 3, 3, 6), ours[..., :6])
    assert torch.allclose(last[..., weight:], ours[..., 6])


def test_refuses_what_does_not_fit() -> None:
    curvature = torch.ones(4000, 1, 1).double()
    with pytest.raises(InputError, match="weights='head'"):
        influence.leverages(lambda index: torch.ones(len(index), 1, 4000), 4000, curvature, [0.1])
