"""Epochs to a loss, read from the history."""

from __future__ import annotations

import pytest
import torch
from cases import recipe

from mindgap.core.subject import Subject
from mindgap.measures import StepsToLoss
from mindgap.training.fit import fit


def subject(*losses: float, name: str = "train_loss") -> Subject:
    history = [{"epoch": float(k), name: loss} for k, loss in enumerate(losses, 1)]
    data = (torch.ones(2, 1), torch.ones(2, 1))
    return Subject(torch.nn.Linear(1, 1), "mse", data, history=history)


def test_counts_epochs() -> None:
    result = StepsToLoss()(subject(1.0, 0.5, 0.1, 0.2, 0.05, 0.009))
    assert (result.value, result.terms["further"]) == (3.0, 3.0)


def test_running_losses_serve_too() -> None:
    assert StepsToLoss()(subject(1.0, 0.05, name="running_loss")).value == 2


@pytest.mark.parametrize("losses", [(1.0, 0.2), (float("nan"),)])
def test_a_loss_never_reached_is_undefined(losses: tuple[float, ...]) -> None:
    reason = StepsToLoss()(subject(*losses)).reason
    assert reason.startswith("the training loss never reached 0.1; the lowest was ")
    assert ("0.2" in reason) == (len(losses) > 1)


def test_no_second_loss_no_further_epochs() -> None:
    assert "further" not in StepsToLoss()(subject(1.0, 0.1)).terms


def test_other_curves_do_not_tell() -> None:
    assert "train_loss" in StepsToLoss()(subject(1.0, name="test_loss")).reason


def test_of_a_training_it_counts_steps() -> None:
    found = StepsToLoss(first=1e3)(fit(recipe(epochs=2, batch_size=10)).subject())
    assert (found.value, found.terms["steps"]) == (1.0, 5.0)
