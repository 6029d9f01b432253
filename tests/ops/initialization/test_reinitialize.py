"""A re-initialized copy keeps its variance, and the model is left alone."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import mindgap
from mindgap.core.errors import InputError, UnknownNameError
from mindgap.nets import MLP, Elman
from mindgap.ops.initialization.propagation import propagation
from mindgap.ops.initialization.reinitialize import KeptNotice, fans, reinitialized

INPUTS = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
@pytest.mark.parametrize("scheme", ["kaiming-normal", "kaiming-uniform", "orthogonal", "lsuv"])
def test_variance_stays_at_one(scheme: str, activation: str) -> None:
    net = MLP((16, *[256] * 6), activation=activation)
    found = propagation(reinitialized(net, INPUTS, scheme=scheme), INPUTS).layers
    assert [row.forward for row in found] == pytest.approx([1.0] * 6, rel=0.5)
    if scheme == "lsuv":
        assert [row.forward for row in found] == pytest.approx([1.0] * 6, rel=0.03)
    before = propagation(net, INPUTS).layers
    assert before[-1].forward < 0.01


def test_fan_out_keeps_gradients() -> None:
    net = MLP((16, 64, 256, 64, 256, 64))
    fresh = reinitialized(net, INPUTS, fan="out")
    found = propagation(fresh, INPUTS).layers
    assert [row.predicted_backward for row in found] == pytest.approx(
        [found[-1].predicted_backward] * 5, rel=0.1
    )


def test_xavier_is_between_both() -> None:
    net = MLP((64, 64, 256), bias=False)
    forward, both, backward = (
        float(reinitialized(net, torch.randn(8, 64), scheme=name, fan=fan)[3].weight.detach().var())
        for name, fan in (
            ("kaiming-normal", "in"),
            ("xavier-normal", "in"),
            ("kaiming-normal", "out"),
        )
    )
    assert backward < both < forward


class _Stream(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 256)
        self.blocks = nn.ModuleList(nn.Linear(256, 256) for _ in range(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(torch.relu(x))
        return x


def test_residual_branches_share_one_variance() -> None:
    fresh = reinitialized(_Stream(), INPUTS)
    found = propagation(fresh, INPUTS).layers
    # The first sum has layers on both sides, which share it.
    assert [row.forward for row in found] == pytest.approx([0.5] * 2 + [1 / 9] * 9, rel=0.4)
    with torch.no_grad():
        assert float(fresh(INPUTS).square().mean()) == pytest.approx(2.0, rel=0.3)
        usual = reinitialized(_Stream(), INPUTS, gain=2**0.5)
        assert float(usual(INPUTS).square().mean()) > 100


def test_a_gain_of_ones_own_decides() -> None:
    fresh = reinitialized(MLP((16, 512, 512)), INPUTS, gain=2.0)
    assert float(fresh[3].weight.detach().var()) == pytest.approx(4 / 512, rel=0.02)


def test_recurrent_weights_become_the_identity() -> None:
    sequences = torch.randn(4, 5, 3)
    fresh = reinitialized(Elman(3, 8, 2), sequences, scheme="identity")
    assert torch.equal(fresh.recurrent.weight, torch.eye(8))
    plain = nn.Sequential(nn.RNN(3, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = reinitialized(_First(plain[0]), sequences, scheme="identity")
    assert torch.equal(again.part.weight_hh_l0, torch.eye(8))
    gates = reinitialized(_First(nn.LSTM(3, 8)), sequences).part.weight_hh_l0
    assert torch.allclose(gates[:8] @ gates[:8].T, torch.eye(8), atol=1e-5)


class _First(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part, self.head = part, nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.part(x)[0])


def test_the_model_is_not_changed_and_the_seed_decides() -> None:
    net = MLP((16, 32, 32, 4), norm="batch").train()
    before = copy.deepcopy(net.state_dict())
    one, same, other = (mindgap.reinitialized(net, INPUTS, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(one[1].weight, same[1].weight)
    assert not torch.equal(one[1].weight, other[1].weight)
    assert all(part.training for part in one.modules())
    assert all(p.requires_grad for p in one.parameters())
    assert torch.equal(one[2].running_mean, torch.zeros(32))
    assert not one[1]._forward_hooks


def test_parametrized_weights_are_written_through() -> None:
    net = nn.Sequential(weight_norm(nn.Linear(16, 256)), nn.ReLU(), nn.Linear(256, 256))
    found = propagation(reinitialized(net, INPUTS), INPUTS).layers
    assert [row.forward for row in found] == pytest.approx([1.0, 1.0], rel=0.2)


def test_weights_without_a_rule_are_named() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = nn.Linear(16, 2), nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.scale

    with pytest.warns(KeptNotice, match="scale"):
        reinitialized(Scaled(), INPUTS)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="scheme"):
        reinitialized(nn.Linear(16, 2), INPUTS, scheme="he")
    with pytest.raises(InputError, match="shape"):
        reinitialized(nn.Linear(16, 2), torch.ones(2, 3))


def test_fans_of_a_grouped_convolution() -> None:
    assert fans(nn.Conv2d(8, 4, 3, groups=4)) == (18, 9)
