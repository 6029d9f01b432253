"""Growth per layer against what hooks see."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mindgap.core.subject import Subject
from mindgap.measures.stability.variance_by_layer import VarianceByLayer
from mindgap.nets import MLP
from mindgap.ops.initialization.subject import SAMPLES

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(40) % 3


def test_equals_brute_force() -> None:
    net = MLP((4, 8, 6, 3)).double()
    initial = copy.deepcopy(net.state_dict())
    with torch.no_grad():
        net[1].weight.mul_(2)
    first = net[1](X)
    last = net[5](torch.relu(net[3](torch.relu(first))))
    first.retain_grad()
    last.retain_grad()
    nn.functional.cross_entropy(last, Y, reduction="sum").backward()
    result = VarianceByLayer()(Subject(net, "cross_entropy", (X, Y), initial=initial))
    expected = float((last.detach().square().mean() / first.detach().square().mean()).sqrt())
    assert result.value == pytest.approx(expected, rel=1e-9)
    backward = float((first.grad.square().mean() / last.grad.square().mean()).sqrt())
    assert result.terms["backward"] == pytest.approx(backward, rel=1e-9)
    assert result.terms["initial_forward"] != pytest.approx(result.value)
    assert [len(chart.series) for chart in result.charts] == [3, 3]
    assert len(X) <= SAMPLES


def test_undefined_for_one_layer() -> None:
    result = VarianceByLayer()(Subject(nn.Linear(4, 3).double(), "cross_entropy", (X, Y)))
    assert result.reason == "needs at least two layers with weights"


def test_undefined_without_a_signal() -> None:
    net = MLP((4, 8, 3)).double()
    nn.init.zeros_(net[1].weight)
    nn.init.zeros_(net[1].bias)
    assert "signal" in VarianceByLayer()(Subject(net, "cross_entropy", (X, Y))).reason
