"""The gradient along depth: the rate against least squares, states, and the layer to blame."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.nets import MLP
from mindgap.ops.signal.depth import BLOWN, LOST, Profile, gradient_rate
from mindgap.ops.signal.trace import gradient_trace


def test_rate_is_the_least_squares_fit() -> None:
    signals = np.exp(np.random.default_rng(0).normal(size=9)).tolist()
    slope = np.polyfit(range(9), np.log(signals), 1)[0]
    assert gradient_rate(signals) == pytest.approx(math.exp(-slope), rel=1e-12)
    assert gradient_rate([1.0, 2.0]) is None
    assert gradient_rate([0.0, 1.0, 2.0]) is None


def test_states_and_where_they_begin() -> None:
    fading = Profile(tuple(0.1**k for k in range(7, -1, -1)))
    assert fading.states == ("vanishing",) * 3 + ("healthy",) * 5
    assert fading.start("vanishing") == 2
    assert fading.culprit("vanishing") is None
    assert fading.rate == pytest.approx(0.1)
    growing = Profile(tuple(10.0**k for k in range(7, -1, -1)))
    assert growing.states == ("exploding",) * 3 + ("healthy",) * 5
    assert growing.start("exploding") == 2


@pytest.mark.parametrize(("factor", "state"), [(LOST / 2, "vanishing"), (2 * BLOWN, "exploding")])
@pytest.mark.parametrize("place", [1, 2, 4])
def test_one_layer_is_to_blame(factor: float, state: str, place: int) -> None:
    signals = [1.0 * factor if k < place else 1.0 for k in range(5)]
    profile = Profile(tuple(signals))
    assert profile.culprit(state) == place
    assert profile.start(state) == place - 1


@pytest.mark.parametrize("state", ["vanishing", "exploding"])
@pytest.mark.parametrize("place", [4, 8, 11])
def test_where_a_change_of_many_layers_begins(state: str, place: int) -> None:
    noise = np.random.default_rng(place).normal(0, 0.2, 11)
    rates = noise + [1.5 * (k < place) for k in range(11)]  # of the 11 layers behind the first
    sizes = np.concatenate([np.cumsum(rates[::-1])[::-1], [0.0]]) * (-1) ** (state == "vanishing")
    fine = [0.0, 0.1] + sizes[0]  # and before: the trouble may end before the input
    profile = Profile(tuple(np.exp(1.5 * np.concatenate([fine, sizes])).tolist()))
    assert profile.culprit(state) is None
    assert profile.origin(state) == 2 + place
    assert profile.origin("exploding" if state == "vanishing" else "vanishing") is None


def test_the_limits_are_limits() -> None:
    assert Profile((1.01 * LOST, 1.0)).states[0] == "healthy"
    assert Profile((0.99 * BLOWN, 1.0)).states[0] == "healthy"
    assert Profile((0.0, 0.0)).states == ("vanishing", "vanishing")


def test_trace_is_the_gradient_of_the_mean_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(MLP((3, 8, 2)), nn.Dropout(0.5)).double()
    x, y = torch.randn(30, 3).double(), torch.arange(30) % 2
    hidden = model[0][1](x)
    outputs = model[0][3](hidden.relu())
    loss = nn.functional.cross_entropy(outputs, y)
    wanted = [float(g.norm()) for g in torch.autograd.grad(loss, [hidden, outputs])]
    trace = gradient_trace(Subject(model, "cross_entropy", (x, y)))
    assert list(trace.layers.values()) == pytest.approx(wanted, rel=1e-9)
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_no_trace_without_gradients() -> None:
    model = nn.Linear(2, 2)
    model.requires_grad_(False)
    data = (torch.eye(2), torch.tensor([0, 1]))
    assert gradient_trace(Subject(model, "cross_entropy", data)) is None


class Attention(nn.Module):
    """Attention with tiny queries and keys, as before training; its values carry the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.query, self.key, self.value = (nn.Linear(4, 4, bias=False) for _ in range(3))
        for part in (self.query, self.key):
            nn.init.normal_(part.weight, std=1e-4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs)
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2)
        return self.last((scores.softmax(-1) @ self.value(hidden)).mean(1))


def test_layers_that_the_gradient_passes_by_are_healthy() -> None:
    torch.manual_seed(0)
    data = torch.randn(64, 5, 4), torch.arange(64) % 2
    trace = gradient_trace(Subject(Attention(), "cross_entropy", data))
    assert trace is not None
    assert trace.layers["query"] < LOST * min(trace.layers["first"], trace.layers["value"])
    assert set(trace.profile.states) == {"healthy"}
    assert max(trace.profile.growth) < BLOWN


def test_a_gradient_that_is_lost_for_good_is_not_passed_by() -> None:
    assert Profile((1e-6, 1e-6, 1.0)).states == ("vanishing", "vanishing", "healthy")
    assert Profile((1.0, 1e-6, 1e-6)).states == ("exploding", "healthy", "healthy")
