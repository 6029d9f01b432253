"""Late over-fitting: where a curve turned, tiny losses, plants."""

from __future__ import annotations

import pytest
import torch
from healthy import healthy
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses.training.late_over_fitting import LateOverFitting
from mindgap.ops.evidence.curves import turning_point
from mindgap.studies.diagnoses.healthy import healthy_recipe


def subject_of(train: list[float], test: list[float], name: str = "test_loss") -> Subject:
    x = torch.linspace(-1, 1, 60)[:, None]
    rows = tuple(
        {"epoch": k + 1.0, "train_loss": a, name: b}
        for k, (a, b) in enumerate(zip(train, test, strict=True))
    )
    return Subject(nn.Linear(1, 1), "mse", (x, x), (x, x), history=rows)


def test_the_turn_is_found() -> None:
    subject = subject_of([4.0, 3.0, 2.0, 1.0], [4.0, 2.0, 3.0, 3.5])
    turn = turning_point(subject.history)
    assert turn is not None
    assert (turn.epoch, turn.lowest, turn.last) == (2, 2.0, 3.5)
    finding = LateOverFitting()(subject)
    assert finding is not None
    assert "after epoch 2" in finding.sentence
    assert finding.advice[0].remedy == "early-stopping"


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ([3.0, 2.0, 1.0], [3.0, 2.0, 1.0]),  # still falls
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),  # both rise: no over-fitting
        ([3.0, 2.0, 1.0], [3e-5, 1e-5, 2e-5]),  # too small to matter
        ([3.0, 1.0], [1.0, 3.0]),  # too short
    ],
)
def test_other_curves_are_not_accused(train: list[float], test: list[float]) -> None:
    assert LateOverFitting()(subject_of(train, test)) is None


def test_validation_comes_before_test() -> None:
    subject = subject_of([4.0, 3.0, 2.0, 1.0], [4.0, 2.0, 3.0, 3.5], "validation_loss")
    finding = LateOverFitting()(subject)
    assert finding is not None
    assert "validation loss" in finding.sentence


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("table", "regression"), ("sequence", "classification")],
)
def test_plants_are_found_and_healthy_nets_are_not(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task)  # type: ignore[arg-type]
    spared = LateOverFitting()(healthy(kind, task))
    assert spared is None or spared.severity != "wrong"
    finding = LateOverFitting()(LateOverFitting.plant(recipe, seed=0))
    assert finding is not None
    assert finding.severity == "wrong"
