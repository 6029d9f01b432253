"""Diverged: losses that explode or are no numbers, runs that only are not good, plants."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses.training.diverged import Diverged
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def subject_of(*losses: float) -> Subject:
    x = torch.linspace(-1, 1, 60)[:, None]
    rows = tuple({"epoch": k + 1.0, "train_loss": loss} for k, loss in enumerate(losses))
    return Subject(nn.Linear(1, 1), "mse", (x, x), history=rows)  # a constant has about 0.34


@pytest.mark.parametrize(
    "losses", [(0.3, 0.1, 9.0), (0.3, math.nan), (0.3, math.inf, 0.2), (0.3, math.inf), (math.inf,)]
)
def test_explosions_are_found(losses: tuple[float, ...]) -> None:
    finding = Diverged()(subject_of(*losses))
    assert finding is not None
    assert finding.severity == "wrong"
    assert finding.p_value is None


@pytest.mark.parametrize(
    ("losses", "cause"), [((0.3, 9.0), ""), ((9.0, 99.0), "exploding-gradients")]
)
def test_what_was_never_learned_is_not_lost(losses: tuple[float, ...], cause: str) -> None:
    subject = subject_of(*losses)
    assert Diverged()(subject).explained_by == cause
    start = subject.model.state_dict()  # whose gradient is healthy
    known = Subject(subject.model, "mse", subject.train, history=subject.history, initial=start)
    assert Diverged()(known).explained_by == ""


@pytest.mark.parametrize(
    "losses",
    [
        (0.3, 0.2, 0.1),
        (0.3, 0.1, 0.5),  # worse, but not twice as bad as a constant
        (90.0, 70.0, 60.0),  # a start far away, and still falling
        (5.0,),
        (),
    ],
)
def test_other_runs_are_not_accused(losses: tuple[float, ...]) -> None:
    assert Diverged()(subject_of(*losses)) is None


def test_why_training_stopped_is_told() -> None:
    why = "diverged: the loss became inf in epoch 1, step 7"
    finding = Diverged(stopped=why)(subject_of())
    assert finding is not None
    assert "epoch 1, step 7" in finding.sentence
    assert Diverged(stopped="early-stopping after epoch 3")(subject_of(0.3, 0.1)) is None


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("table", "regression"), ("sequence", "classification")],
)
def test_plants_are_found_and_healthy_nets_are_not(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task)  # type: ignore[arg-type]
    assert Diverged()(fit(recipe.replace(epochs=5), seed=0).subject()) is None
    finding = Diverged()(Diverged.plant(recipe, seed=0))
    assert finding is not None
    assert "clip_grad_norm_" in finding.advice[0].code
