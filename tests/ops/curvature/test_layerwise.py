"""The Gauss–Newton diagonal layer by layer, and when it must not be used."""

from __future__ import annotations

import pytest
import torch
from ops.curvature.dense import brute_gauss_newton
from torch import nn

from mindgap.core.subject import Subject
from mindgap.ops.curvature import hessian_diagonal as diagonals
from mindgap.ops.curvature.flat_loss import FlatLoss


class Twice(nn.Module):
    """Calls one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Tied(nn.Module):
    """Uses the weight of a layer a second time, behind its back."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.inner(x)) @ self.inner.weight)


def subject(model: nn.Module, *shape: int) -> Subject:
    x = torch.randn(9, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Subject(model.double(), "cross_entropy", (x, torch.arange(9) % 3))


CONVOLUTIONS = {
    "plain": nn.Conv2d(2, 3, 3),
    "strided": nn.Conv2d(2, 3, (3, 2), stride=2, padding=(1, 0)),
    "dilated": nn.Conv2d(2, 3, 2, dilation=3, padding=1, bias=False),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    net = nn.Sequential(CONVOLUTIONS[name], nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)).double()
    net(torch.zeros(1, 2, 7, 6).double())
    check(subject(net, 2, 7, 6), quick=True)


@pytest.mark.parametrize(
    ("model", "shape", "quick"),
    [
        (nn.Linear(4, 3), (4,), True),
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), (4,), True),
        (nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)), (4,), False),
        (nn.Sequential(nn.Linear(4, 2), nn.Flatten(), nn.Linear(6, 3)), (3, 4), False),
        (nn.Sequential(nn.Conv2d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(16, 3)), (2, 3, 3), False),
        (Twice(), (4,), False),
        (Tied(), (4,), False),
    ],
)  # fmt: skip
def test_other_networks(model: nn.Module, shape: tuple[int, ...], quick: bool) -> None:
    check(subject(model, *shape), quick=quick)


def check(given: Subject, *, quick: bool) -> None:
    flat, hooks = FlatLoss(given), [len(m._forward_hooks) for m in given.model.modules()]
    expected = brute_gauss_newton(given).diag()
    assert torch.allclose(diagonals.hessian_diagonal(flat, flat.point), expected, atol=1e-10)
    assert (diagonals._usable_layers(flat, flat.point) is not None) == quick
    assert hooks == [len(m._forward_hooks) for m in given.model.modules()]


def test_some_weights_only() -> None:
    given = subject(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), 4)
    flat = FlatLoss(given, only=["2.bias"])
    expected = brute_gauss_newton(given).diag()[-3:]
    assert torch.allclose(diagonals.hessian_diagonal(flat, flat.point), expected, atol=1e-10)
