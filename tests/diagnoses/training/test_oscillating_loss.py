"""Oscillating loss: curves by hand, plants, healthy nets."""

from __future__ import annotations

import pytest
import torch
from healthy import healthy
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses.training.oscillating_loss import OscillatingLoss
from mindgap.ops.evidence.curves import course
from mindgap.studies.diagnoses.healthy import healthy_recipe


def subject_of(losses: list[float]) -> Subject:
    x = torch.linspace(-1, 1, 60)[:, None]
    rows = tuple({"epoch": k + 1.0, "train_loss": loss} for k, loss in enumerate(losses))
    return Subject(nn.Linear(1, 1), "mse", (x, x), (x, x), history=rows)


def test_swings_are_measured_in_the_second_half() -> None:
    found = course(subject_of([9.0, 0.1, 9.0, 1.0, 2.0, 1.0, 2.0]).history)
    assert found is not None
    assert found.ups == pytest.approx(2 / 3)
    assert found.swing == pytest.approx(1 / 1.5)


@pytest.mark.parametrize(
    "losses",
    [
        [0.3 * 0.8**k for k in range(12)],  # falls
        [0.3 + 0.01 * (-1) ** k for k in range(12)],  # wobbles
        [1e-4 + 0.9e-4 * (-1) ** k for k in range(12)],  # swings that matter to nobody
        [0.3, 0.1, 0.3],  # too short to say
    ],
)
def test_other_curves_are_not_accused(losses: list[float]) -> None:
    assert OscillatingLoss()(subject_of(losses)) is None


def test_swings_of_a_model_that_fits_are_a_note() -> None:
    subject = subject_of([0.2 + 0.15 * (-1) ** k for k in range(12)])
    with torch.no_grad():
        subject.model.weight.fill_(1.0)
        subject.model.bias.zero_()
    finding = OscillatingLoss()(subject)
    assert finding is not None
    assert finding.severity == "note"


@pytest.mark.parametrize(("kind", "task"), [("image", "classification"), ("table", "regression")])
def test_plants_are_found_and_healthy_nets_are_not(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task)  # type: ignore[arg-type]
    assert OscillatingLoss()(healthy(kind, task)) is None
    finding = OscillatingLoss()(OscillatingLoss.plant(recipe, seed=0))
    assert finding is not None
    assert finding.severity == "wrong"
