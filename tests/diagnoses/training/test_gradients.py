"""Vanishing and exploding gradients: the layer, over depth and over time, and how severe it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Diagnosis, Subject
from mindgap.diagnoses import ExplodingGradients, VanishingGradients
from mindgap.nets import Elman


def chain(place: int, factor: float) -> Subject:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(6)])
    for layer in model:
        nn.init.eye_(layer.weight)
    model[place].weight.data.mul_(factor)
    x = torch.randn(200, 3)
    return Subject(model, "mse", (x[:100], x[:100] ** 2), (x[100:], x[100:] ** 2))


@pytest.mark.parametrize("place", [1, 3, 5])
@pytest.mark.parametrize(
    ("diagnosis", "factor"), [(VanishingGradients(), 1e-6), (ExplodingGradients(), 1e6)]
)
def test_the_layer_is_named(diagnosis: Diagnosis, factor: float, place: int) -> None:
    finding = diagnosis(chain(place, factor))
    assert f"at layer '{place}'" in finding.sentence
    assert finding.severity == "wrong"
    assert diagnosis(chain(place, 1.0)) is None
    other = ExplodingGradients() if factor < 1 else VanishingGradients()
    assert other(chain(place, factor)) is None


@pytest.mark.parametrize(
    ("diagnosis", "factor"), [(VanishingGradients(), 1e-6), (ExplodingGradients(), 1e6)]
)
def test_a_gradient_that_was_healthy_at_first_may_have_a_cause(
    diagnosis: Diagnosis, factor: float
) -> None:
    now = chain(3, factor)
    for before, cause in [(1.0, "learning-rate-too-high"), (factor, ""), (factor**0.6, "")]:
        start = chain(3, before).model.state_dict()
        finding = diagnosis(Subject(now.model, "mse", now.train, now.test, initial=start))
        assert finding.explained_by == cause
        assert ("healthy in the initial network" in str(finding.sentences)) == bool(cause)
    assert diagnosis(now).explained_by == ""


def test_over_the_steps_of_a_sequence() -> None:
    torch.manual_seed(0)
    model = Elman(2, 8, 3)
    nn.init.orthogonal_(model.recurrent.weight).data.mul_(0.5)
    x = torch.randn(60, 40, 2)
    finding = VanishingGradients()(Subject(model, "cross_entropy", (x, torch.arange(60) % 3)))
    assert finding.severity == "suspect"  # without test data nobody knows what is attainable
    assert "at layer 'recurrent'" in finding.sentence
    assert "first step of the sequence" in finding.sentence
    rate = {row.name: row.value for row in finding.evidence}["factor per step of the sequence"]
    assert 0.3 < rate < 0.5


def test_a_model_that_fits_gets_a_note() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 1)
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    nn.init.constant_(model[0].weight, 1e6)
    nn.init.constant_(model[1].weight, 1e-6)
    noisy = x + 0.01 * torch.randn(200, 1)
    subject = Subject(model, "mse", (x[:100], noisy[:100]), (x[100:], noisy[100:]))
    assert VanishingGradients()(subject).severity == "note"
