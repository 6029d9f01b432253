"""The bound of a compressed network counts every number that describes it."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import optimize, stats

from mindgap.bounds import CompressedNetwork
from mindgap.core import Subject
from mindgap.nets import MLP
from mindgap.ops.compression.project import matrix_project, rounded


def easy(samples: int) -> Subject:
    """Two far classes in the plane, and a linear classifier that knows them."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(samples) % 2
    x = torch.randn(samples, 2, generator=random, dtype=torch.float64) + 8.0 * y[:, None]
    net = MLP((2, 2)).double()
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
        net[1].bias.copy_(torch.tensor([8.0, -8.0]))
    return Subject(net, "cross_entropy", (x, y))


def test_is_not_vacuous_for_a_small_network_and_many_samples() -> None:
    result = CompressedNetwork()(easy(4000))
    assert result.valid
    assert not result.vacuous
    assert result.provenance["risk_of"] == "the compressed network"


def test_equals_plain_arithmetic_on_the_compressed_network() -> None:
    subject = easy(500)
    x, y = subject.train.take(torch.arange(500)).inputs[0], subject.targets()
    weight, bias = (parameter.detach() for parameter in subject.model.parameters())
    best = 1.0
    for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0):
        count = max(1, round(4 * share))
        small = matrix_project(weight, count, 0, levels=16)
        wrong = (x @ small.T + rounded(bias, 16)).argmax(1) != y
        rate = float(wrong.double().mean())
        budget = ((count + 2) * math.log(16) + 64 * math.log(2) + math.log(5 / 0.05)) / 500
        excess = lambda p, q=rate, b=budget: stats.entropy([q, 1 - q], [p, 1 - p]) - b  # noqa: E731
        best = min(best, optimize.brentq(excess, rate + 1e-12, 1 - 1e-12))
    assert float(CompressedNetwork()(subject)) == pytest.approx(best, rel=1e-9)


def test_more_levels_cost_more() -> None:
    numbers = {"empirical": 0.1, "samples": 10_000, "numbers": 500, "layers": 2}
    few, many = (float(CompressedNetwork(levels=r).evaluate(**numbers)) for r in (4, 256))
    assert few < many
