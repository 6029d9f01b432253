"""A learning rate that is too high: plants, good rates, runs without initial weights."""

from __future__ import annotations

import pytest

from mindgap.core import Subject
from mindgap.diagnoses.training.learning_rate_too_high import LearningRateTooHigh
from mindgap.diagnoses.training.too_small import TooSmall
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit

KINDS = [("image", "classification"), ("table", "regression"), ("sequence", "classification")]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task)  # type: ignore[arg-type]
    finding = LearningRateTooHigh()(LearningRateTooHigh.plant(recipe, seed=0))
    assert finding is not None
    assert finding.severity == "wrong"
    assert "/= 10" in finding.advice[0].code
    assert finding.p_value < 1e-3


@pytest.mark.parametrize(("kind", "task"), KINDS)
@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_other_rates_are_not_accused(kind: str, task: str, factor: float) -> None:
    recipe = healthy_recipe(kind, task)  # type: ignore[arg-type]
    rate = factor * recipe.learning_rate
    subject = fit(recipe.replace(learning_rate=rate), seed=1).subject()
    assert LearningRateTooHigh()(subject) is None


def test_a_small_model_is_not_accused() -> None:
    assert LearningRateTooHigh()(TooSmall.plant(healthy_recipe("image"), seed=0)) is None


def test_without_initial_weights_it_is_a_suspicion() -> None:
    recipe = healthy_recipe("image")
    planted = LearningRateTooHigh.plant(recipe, seed=0)
    subject = Subject(
        planted.model, "cross_entropy", recipe.train, recipe.test, history=planted.history
    )
    finding = LearningRateTooHigh()(subject)
    assert finding is not None
    assert finding.severity == "suspect"
