"""Path norms against lists of all paths, and against the chain of ReLU layers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mindgap.core import InputError
from mindgap.nets import MLP, LeNet5, ResNet20
from mindgap.ops.norms.folding import folded
from mindgap.ops.norms.path import log_path_norm
from mindgap.ops.paths.chain import read_chain
from mindgap.ops.paths.norms import log_path_norms


class Residual(nn.Module):
    """Two ways around a hidden layer, by functions and operators."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * (functional.relu(self.second(functional.relu(self.first(x)))) - x)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_residual_sums_by_a_list_of_all_paths(power: float) -> None:
    net = Residual().double()
    first, second = net.first.weight.detach(), net.second.weight.detach()
    expected = []
    for k in range(3):
        weights = [first[j, i] * second[k, j] for i, j in itertools.product(range(3), range(4))]
        weights += [net.first.bias.detach()[j] * second[k, j] for j in range(4)] + [
            torch.tensor(1.0)
        ]
        expected.append(sum(float(0.5 * w.abs()) ** power for w in weights))
    found = log_path_norm(net, torch.zeros(2, 3), power).exp()
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


class Deep(nn.Module):
    """Residual layers whose paths overflow double precision, of several sizes next to each other."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(40))
        self.norm, self.last, self.factor = nn.BatchNorm1d(3), nn.Linear(6, 2), factor

    def forward(self, x: Tensor) -> Tensor:
        early = x
        for layer in self.layers:
            x = x + self.factor * torch.relu(layer(x))
        return self.last(torch.cat([self.norm(x), early + 1], 1))


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_sums_beyond_double_precision(power: float) -> None:
    """Logarithms are added by hand, layer by layer."""
    torch.manual_seed(0)
    net = Deep(1e12).double().eval()
    net.norm.running_var.fill_(4.0 - net.norm.eps)

    def through(layer: nn.Linear, logs: Tensor, plus: float) -> Tensor:
        edges = power * torch.cat([layer.weight, layer.bias[:, None]], 1).detach().abs().log()
        return (edges + torch.cat([logs, torch.zeros(1).double()])).logsumexp(1) + plus

    logs = torch.zeros(3).double()
    for layer in net.layers:
        logs = torch.logaddexp(logs, through(layer, logs, power * math.log(net.factor)))
    early = torch.full((3,), math.log(2)).double()
    expected = through(net.last, torch.cat([logs - power * math.log(2), early]), 0.0)
    found = log_path_norm(net, torch.zeros(1, 3), power)
    assert float(found.max()) > 1000
    assert torch.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("power", [1.0, 2.0])
@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (LeNet5(), (1, 28, 28)),
        (LeNet5(pool="average"), (1, 28, 28)),
        (MLP((4, 6, 5, 3), norm="batch"), (4,)),
        (
            nn.Sequential(
                nn.Conv2d(1, 2, 3),
                nn.MaxPool2d(3, 2, 1),
                nn.LeakyReLU(),
                nn.Flatten(),
                nn.Linear(18, 2),
            ),
            (1, 7, 7),
        ),
    ],
    ids=["max", "average", "batch", "overlapping"],
)
def test_chains_equal_their_dynamic_program(net: nn.Module, shape: tuple, power: float) -> None:
    torch.manual_seed(0)
    net(3 * torch.randn(9, *shape) + 1)  # moves the statistics of batch normalization
    chain = log_path_norms(read_chain(net, shape), power)
    assert torch.allclose(log_path_norm(net, torch.zeros(1, *shape), power), chain, rtol=1e-12)


def test_pooling_by_functions_equals_explicit_weights() -> None:
    """A path through an average has its weight; the explicit matrix has all of them."""
    x = torch.zeros(1, 1, 6, 6)
    pools = [
        nn.AdaptiveAvgPool2d(4),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    ]
    for pool in pools:
        units = torch.eye(36, dtype=torch.double).view(36, 1, 6, 6)
        weights = pool(units).flatten(1)
        found = log_path_norm(pool, x, 2.0).exp()
        assert torch.allclose(found, weights.square().sum(0))


def test_folding_and_rescaling_leave_it_alone() -> None:
    torch.manual_seed(0)
    net = ResNet20()
    net(torch.randn(4, 3, 16, 16))
    x = torch.zeros(1, 3, 16, 16)
    assert torch.allclose(log_path_norm(net, x), log_path_norm(folded(net, x).model, x), rtol=1e-12)
    plain = MLP((4, 6, 3))
    before = log_path_norm(plain, torch.zeros(1, 4))
    with torch.no_grad():
        plain[1].weight.mul_(7), plain[1].bias.mul_(7), plain[3].weight.div_(7)
    assert torch.allclose(before, log_path_norm(plain, torch.zeros(1, 4)), rtol=1e-6)


@pytest.mark.parametrize(
    ("net", "word"),
    [
        (MLP((4, 3, 2), activation="tanh"), "tanh"),
        (MLP((4, 3, 2), norm="layer"), "layer_norm"),
        (nn.LeakyReLU(2.0), "slope"),
    ],
    ids=str,
)
def test_other_functions_are_refused(net: nn.Module, word: str) -> None:
    with pytest.raises(InputError, match=word):
        log_path_norm(net, torch.zeros(1, 4))


def test_products_of_activations_are_refused() -> None:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    with pytest.raises(InputError, match="multiplied"):
        log_path_norm(Gate(), torch.zeros(1, 4))


def test_functions_in_place_and_reversed_are_read_right() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.clone()
            y.mul_(3)
            y += 2 * x
            return 4 - y

    # Three and two from the input, times one, and four of a bias.
    assert log_path_norm(InPlace(), torch.zeros(1, 1), 1.0).exp().tolist() == pytest.approx([9.0])

    class Inverse(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 1 / x

    with pytest.raises(InputError, match="got"):
        log_path_norm(Inverse(), torch.zeros(1, 1))
