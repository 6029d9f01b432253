"""A learning rate that is too low: plants, good rates, runs that were only stopped early."""

from __future__ import annotations

import math

import pytest
from healthy import healthy

from mindgap.diagnoses.diagnose import diagnose
from mindgap.diagnoses.training.learning_rate_too_low import LearningRateTooLow
from mindgap.ops.evidence.curves import speed
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit

KINDS = [("image", "classification"), ("table", "regression"), ("sequence", "classification")]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found_before_their_symptoms(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task)  # type: ignore[arg-type]
    subject = LearningRateTooLow.plant(recipe, seed=0)
    found = diagnose(
        subject, diagnoses=["learning-rate-too-low", "under-trained", "too-small", "over-fitting"]
    ).findings
    assert found[0].name == "learning-rate-too-low"
    assert found[0].severity == "wrong"
    assert all(finding.explained_by for finding in found[1:])


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_good_rates_are_not_accused(kind: str, task: str) -> None:
    assert LearningRateTooLow()(healthy(kind, task)) is None


def test_a_run_that_was_stopped_early_is_not_slow() -> None:
    subject = fit(healthy_recipe("image").replace(epochs=4), seed=0).subject()
    assert LearningRateTooLow()(subject) is None


def test_speed_of_an_exponential_fall() -> None:
    rows = [{"epoch": k + 1.0, "train_loss": math.exp(-0.2 * k)} for k in range(10)]
    assert speed(rows, 3.0) == pytest.approx(0.6)
    assert speed(rows, 30.0) == pytest.approx(6.0)  # longer than the run: extrapolated
    assert speed(rows[:1], 1.0) is None
