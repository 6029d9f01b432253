"""The Lipschitz constant of whole networks: never below the slopes that are seen."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mindgap.nets import MLP, ResNet20
from mindgap.ops.norms.composed import Composed, lipschitz_upper
from mindgap.ops.norms.layer_norms import layer_norms


def steepest(model: nn.Module, inputs: Tensor) -> float:
    """The largest singular value of the Jacobian at any of the inputs."""
    rows = [
        torch.autograd.functional.jacobian(lambda x: model(x[None])[0], one).flatten(1)
        for one in inputs
    ]
    return max(float(torch.linalg.matrix_norm(row, 2)) for row in rows)


def test_a_chain_is_the_product_of_its_layers() -> None:
    net = MLP((4, 6, 5, 3), activation="gelu")
    rows = layer_norms(net, torch.zeros(1, 4))
    found = lipschitz_upper(net, torch.zeros(1, 4))
    assert found.upper == pytest.approx(math.prod(row.upper for row in rows), rel=1e-12)
    assert found.reason == ""


class Mixed(nn.Module):
    """Functions, sums, factors and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        left = functional.leaky_relu(self.first(x), 0.2) * 2.0 - x / 4
        right = torch.sigmoid(self.second(x) + 1.0)
        both = torch.cat([left, right], dim=1)
        both += functional.pad(x, (0, 4))
        return both.view(-1, 2, 4).mean(1)


def test_functions_between_layers_by_hand() -> None:
    net = Mixed()
    one, two = (
        float(torch.linalg.matrix_norm(m.weight.detach().double(), 2))
        for m in (net.first, net.second)
    )
    expected = (math.hypot(2 * one + 0.25, two / 4) + 1) / math.sqrt(2)
    found = lipschitz_upper(net, torch.zeros(1, 4))
    assert found.upper == pytest.approx(expected, rel=1e-7)
    torch.manual_seed(0)
    assert steepest(net, torch.randn(20, 4)) <= found.upper


def test_residual_networks_are_bounded() -> None:
    torch.manual_seed(0)
    net = ResNet20(width=4).eval()
    x = torch.randn(3, 3, 8, 8)
    found = lipschitz_upper(net, x[:1])
    assert steepest(net, x) <= found.upper < math.inf
    first = net.stages[0][0]
    parts = [row.upper for row in layer_norms(first.residual, torch.zeros(1, 4, 8, 8))]
    assert lipschitz_upper(first, torch.zeros(1, 4, 8, 8)).upper == pytest.approx(
        1 + math.prod(parts)
    )


def test_what_has_no_constant_says_why() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    found = lipschitz_upper(Square(), torch.zeros(1, 4))
    assert found.upper == math.inf
    assert "mul" in found.reason
    net = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    found = lipschitz_upper(net, torch.zeros(1, 3, 4))
    assert found.upper == math.inf
    assert "attention" in found.reason


def test_the_model_keeps_no_hooks() -> None:
    net = MLP((4, 3, 2))
    found = lipschitz_upper(net, torch.zeros(1, 4))
    assert found == Composed(found.upper)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


class Copied(nn.Module):
    """Applies a function to its input."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Compute the function."""
        found: Tensor = self.function(x)  # type: ignore[operator]
        return found


def test_copies_by_broadcasting_count() -> None:
    x = torch.ones(1, 3, 1)
    outer = Copied(lambda x: x * torch.tensor([1.0, 2.0, 2.0]))
    assert steepest(outer, x) == pytest.approx(3.0)
    assert lipschitz_upper(outer, x).upper == pytest.approx(2 * math.sqrt(3))
    shifted = Copied(lambda x: x + torch.zeros(1, 3, 4))
    assert lipschitz_upper(shifted, x).upper == pytest.approx(steepest(shifted, x)) == 2.0


def test_an_index_that_may_repeat_places_has_no_rule() -> None:
    twice = Copied(lambda x: x[:, [0, 0]])
    assert steepest(twice, torch.ones(1, 2)) > 1.4
    assert lipschitz_upper(twice, torch.ones(1, 2)).upper == math.inf
    assert lipschitz_upper(Copied(lambda x: x[:, 1:]), torch.ones(1, 2)).upper == 1.0
