"""The races on real data: the finalist is chosen on validation data, and tests are read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mindgap.data import load
from mindgap.studies.improve.real import COLUMNS, SIDE, DoesImproveHelp, _change, _small
from mindgap.training.race.of_recipe import RecipeTrainer


def test_tiny_study_on_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poisoned test targets change the errors, but neither the control nor the finalist."""
    study = DoesImproveHelp().tiny()
    (trial,) = study.trials()
    record = study.run(trial)
    table = study.summarize([(trial, record)])
    assert len(table.rows[0]) == len(COLUMNS)
    assert record["errors"][1] - record["errors"][2] == pytest.approx(record["finalist"][0])
    assert record["errors"][0] - record["errors"][2] == pytest.approx(record["whole"][0])

    honest = RecipeTrainer.errors

    def poisoned(self: Any, answers: Any) -> np.ndarray:
        return 1 - honest(self, answers)

    monkeypatch.setattr(RecipeTrainer, "errors", poisoned)
    other = study.run(trial)
    assert (other["arm"], other["control"]) == (record["arm"], record["control"])
    assert other["errors"] == pytest.approx([1 - error for error in record["errors"]])


def test_a_gain_is_a_negative_change() -> None:
    assert _change([0.01, 0.002, 0.018], 0.04) == (-25.0, "[-45.0, -5.0]")


def test_splits_share_no_sample_and_images_are_small() -> None:
    recipe = DoesImproveHelp(samples=200, test_samples=100)._recipe(load("digits"), 0)
    rows = [{tuple(row.tolist()) for row in part[0]} for part in (recipe.train, recipe.test)]
    assert (len(rows[0]), len(rows[1])) == (200, 100)
    assert not rows[0] & rows[1]
    assert _small(torch.zeros(2, 3, 32, 32)).shape == (2, 3 * SIDE * SIDE)
