"""Networks whose Gauss–Newton diagonal is the Hessian's are told from others."""

from __future__ import annotations

import pytest
import torch
from ops.curvature.dense import brute_gauss_newton, brute_hessian
from torch import Tensor, nn

from mindgap.core.subject import Subject
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.straight import is_straight


class Twice(nn.Module):
    """Calls one layer twice, with a ReLU between the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(torch.relu(self.inner(x))))


class Skip(nn.Module):
    """A residual block without a bend."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + torch.relu(self.norm(self.inner(x))))


def stack(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), *middle, nn.Linear(5, 3))


NETS = {
    "linear": (lambda: nn.Linear(4, 3), True),
    "relu": (lambda: stack(nn.ReLU()), True),
    "leaky": (lambda: stack(nn.LeakyReLU()), True),
    "residual": (Skip, True),
    "tanh": (lambda: stack(nn.Tanh()), False),
    "gelu": (lambda: stack(nn.GELU()), False),
    "layer norm": (lambda: stack(nn.LayerNorm(5), nn.ReLU()), False),
    "twice": (Twice, False),
}


def subject(name: str) -> Subject:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(9, 4, generator=source, dtype=torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = NETS[name][0]().double()
    return Subject(model, "cross_entropy", (x, torch.arange(9) % 3))


@pytest.mark.parametrize("name", NETS)
def test_tells_by_the_diagonals(name: str) -> None:
    given, straight = subject(name), NETS[name][1]
    same = torch.allclose(
        brute_hessian(given).diagonal(), brute_gauss_newton(given).diagonal(), atol=1e-12
    )
    assert (is_straight(FlatLoss(given)), same) == (straight, straight)


def welsch(output: Tensor, target: Tensor) -> Tensor:
    return 1 - torch.exp(-(output - target).square().sum(1))


def test_a_loss_that_is_not_convex_is_refused() -> None:
    x = torch.linspace(-3, 3, 40).double()[:, None]
    model = nn.Linear(1, 1).double()
    nn.init.ones_(model.weight)
    given = Subject(model, welsch, (x, torch.zeros_like(x)), task="regression")
    assert not is_straight(FlatLoss(given))
    assert is_straight(FlatLoss(Subject(model, "mse", (x, torch.zeros_like(x)))))
