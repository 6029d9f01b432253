"""The curves of DARC1 by epoch are errors, and every arm is compared with the plain loss."""

from __future__ import annotations

import pytest

from mindgap.core.study import Trial
from mindgap.studies.darc.by_epoch import ARMS, DARCByEpoch


def record(test: float) -> dict[str, object]:
    final = {"train": 80.0, "validation": 50.0, "test": test}
    curves = {name: [40.0, test + 5, value] for name, value in final.items()}
    return {"epochs": [1, 2, 3], "curves": curves, "final": final}


def test_rows_and_curves() -> None:
    study = DARCByEpoch(seeds=2)
    accuracy = dict(zip(ARMS, (60.0, 64.0, 56.0, 60.0), strict=True))
    records = [(trial, record(accuracy[trial["arm"]] + trial.seed)) for trial in study.trials()]
    table = study.summarize(records)
    assert [row[0] for row in table.rows] == list(ARMS)
    plain, small = table.rows[:2]
    assert plain[2] == pytest.approx(0.395)
    assert plain[5] == pytest.approx(0.345)
    assert small[6] == pytest.approx(0.355 / 0.395)
    (chart,) = table.charts
    assert [round(value, 6) for value in chart.series[0].y] == [0.6, 0.345, 0.395]
    assert "substitute" in table.notes[0]


def test_unfinished_arms_are_left_out() -> None:
    records = [
        (Trial(parameters={"arm": arm}, seed=seed), record(60.0))
        for arm, seed in ((next(iter(ARMS)), 0), (next(iter(ARMS)), 1), (list(ARMS)[1], 0))
    ]
    assert len(DARCByEpoch(seeds=2).summarize(records).rows) == 1
