"""The races on real data: the finalist is chosen on validation data, and tests are read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mindgap.studies.improve.real import COLUMNS, DoesImproveHelp, _change
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
