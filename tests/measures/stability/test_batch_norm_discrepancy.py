"""The distance of both modes of batch normalization, against a hand-made pass."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mindgap.core.subject import Subject
from mindgap.measures.stability.batch_norm_discrepancy import BatchNormDiscrepancy
from mindgap.nets import MLP

X = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(50) % 3


def test_equals_brute_force() -> None:
    net = MLP((4, 8, 3), norm="batch", dropout=0.5).double()
    result = BatchNormDiscrepancy()(Subject(net, "cross_entropy", (X, Y)))
    other = copy.deepcopy(net).eval()
    stored = other(X)
    other[2].train()
    own = other(X)
    expected = ((own - stored).square().sum() / (stored - stored.mean(0)).square().sum()).sqrt()
    assert result.value == pytest.approx(float(expected.detach()), rel=1e-9)
    loss = nn.functional.cross_entropy(own, Y)
    assert result.terms["loss_with_batch_statistics"] == pytest.approx(
        float(loss.detach()), rel=1e-9
    )
    assert tuple(result.charts[0].series[0].x) == (2, 4, 8, 16, 32, 50)
    assert torch.equal(net[2].running_mean, torch.zeros(8))


def test_statistics_of_the_same_samples_agree() -> None:
    net = MLP((4, 8, 3), norm="batch").double()
    net[2].momentum = None
    net.train()(X)
    # What is stored is the unbiased variance; a batch divides by the biased one.
    net[2].running_var.mul_(49 / 50)
    assert float(BatchNormDiscrepancy()(Subject(net, "cross_entropy", (X, Y)))) < 1e-9


def test_zero_without_batch_normalization() -> None:
    assert (
        float(BatchNormDiscrepancy()(Subject(MLP((4, 3)).double(), "cross_entropy", (X, Y)))) == 0
    )


def test_undefined_for_constant_outputs() -> None:
    net = MLP((4, 8, 3), norm="batch").double()
    nn.init.zeros_(net[4].weight)
    assert "differ" in BatchNormDiscrepancy()(Subject(net, "cross_entropy", (X, Y))).reason
