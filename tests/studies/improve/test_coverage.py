"""Coverage on real nets: counts are those of a plain loop, and a wrong interval is found out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mindgap.core import Interval, two_way
from mindgap.studies.improve import coverage
from mindgap.studies.improve.coverage import COLUMNS, IntervalCoverage


def _gains(seed: int = 0) -> np.ndarray:
    """Seeds and samples with effects of their own, and a mean of one tenth."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(60, 1)) + 4 * rng.normal(size=400) + rng.normal(size=(60, 400))
    return table - table.mean() + 0.1


def test_the_interval_holds_and_that_over_seeds_does_not() -> None:
    study = IntervalCoverage(draws=300, seeds=12)
    found = study._covered(_gains(), 80, 0)
    assert found["true"] == pytest.approx(0.1)
    assert 0.91 < found["both"] / 300 < 0.98
    assert found["alone"] / 300 < 0.85


def test_an_interval_that_is_too_narrow_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(table: np.ndarray):
        found = two_way(table)
        half = (found.interval.high - found.interval.low) / 4
        middle = found.difference
        return dataclasses.replace(found, interval=Interval(low=middle - half, high=middle + half))

    monkeypatch.setattr(coverage, "two_way", narrow)
    assert IntervalCoverage(draws=200, seeds=12)._covered(_gains(), 80, 0)["both"] / 200 < 0.8


def test_draws_without_a_difference_are_counted_apart() -> None:
    gains = np.zeros((10, 50))
    gains[0, 0] = 1.0
    found = IntervalCoverage(draws=100, seeds=3)._covered(gains, 10, 0)
    assert 60 < found["same"] < 100
    assert found["both"] + found["same"] <= 100


def test_table_of_the_tiny_study() -> None:
    study = IntervalCoverage().tiny()
    records = [(trial, study.run(trial)) for trial in study.trials()]
    assert records[0][1]["population"] == [8, 60]
    table = study.summarize(records)
    assert table.columns == COLUMNS
    assert [row[1] for row in table.rows][:2] == ["learning rate ×3", "label smoothing"]
    assert all(0 <= row[5] <= 100 and len(row) == len(COLUMNS) for row in table.rows)
    assert "The worst coverage is" in table.notes[0]
