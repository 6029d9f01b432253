"""The question about uniform points: what is true, and how answers are counted."""

from __future__ import annotations

import pytest
import torch

from mindgap.core import Trial
from mindgap.studies.tbs.uniform_question import UniformQuestion, _true_ratio


def test_points_at_a_bump_that_nobody_else_meets_are_worth_more() -> None:
    def bump(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[:, None], (-((x[:, None] - 0.8) / 0.05).square()).exp()

    line = torch.linspace(0, 1, 500, dtype=torch.float64)
    initial, dense, sparse = bump(line[:300:30]), bump(line[350:450:5]), bump(line[:300:15])
    assert _true_ratio(initial, dense, [sparse], bump(line)) < 0.1
    assert _true_ratio(initial, sparse, [dense], bump(line)) > 10
    assert _true_ratio(initial, dense, [dense], bump(line)) == pytest.approx(1)


def test_wrong_answers_are_those_about_uniform_points() -> None:
    study = UniformQuestion(seeds=4, sizes=(10,))
    words = ["better", "unclear", "unclear", "worse"]
    records = [
        (trial, {"words": words, "ratios": [0.5, 1.0, 2.0, 4.0]}) for trial in study.trials()[:2]
    ]
    table = study.summarize(records)
    assert [row[4] for row in table.rows] == [25, 25]
    assert [row[7] for row in table.rows] == [25, 25]
    assert "2 of 4 answers claim a difference" in table.notes[0]


def test_a_trial_is_repeatable_and_asks_as_often_as_there_are_seeds() -> None:
    study = UniformQuestion(seeds=2, sizes=(10,))
    trial = Trial(parameters={"function": "step", "new": "uniform", "size": 10}, seed=3)
    record = study.run(trial)
    assert record == study.run(trial)
    assert len(record["words"]) == len(record["ratios"]) == 2
