"""A layer that is linear on all samples is named; one that switches, or is dead, is not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses import IdleLayer


def subject_of(lifted: int, sunk: int = 0, units: int = 100) -> Subject:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, units), nn.ReLU(), nn.Linear(units, 1))
    nn.init.zeros_(net[0].bias)
    with torch.no_grad():
        net[0].bias[:lifted] = 99.0
        net[0].bias[lifted : lifted + sunk] = -99.0
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    return Subject(net, "mse", (x[:200], x[:200, :1]), (x[200:], x[200:, :1]))


@pytest.mark.parametrize(
    ("lifted", "sunk", "found"),
    [(0, 0, False), (90, 0, False), (100, 0, True), (40, 60, True), (5, 95, False)],
)
def test_counts_units_whose_gate_never_changes(lifted: int, sunk: int, found: bool) -> None:
    finding = IdleLayer()(subject_of(lifted, sunk))
    assert (finding is not None) == found  # what is nearly dead is told by dead-units
    if finding is not None:
        assert "100 of its 100 units" in finding.sentence


def test_a_model_that_fits_gets_a_note() -> None:
    subject = subject_of(100)
    with torch.no_grad():
        subject.model[0].weight.copy_(torch.tensor([[1.0, 0.0]]).expand(100, 2))
        subject.model[2].weight.fill_(0.01)
        subject.model[2].bias.fill_(-99.0)
    assert subject.mean_loss("test") < 1e-8
    assert IdleLayer()(subject).severity == "note"


def test_other_activations_are_not_looked_at() -> None:
    net = nn.Sequential(nn.Linear(2, 10), nn.GELU(), nn.Linear(10, 1))
    nn.init.constant_(net[0].bias, 99.0)
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    assert IdleLayer()(Subject(net, "mse", (x, x[:, :1]))) is None
