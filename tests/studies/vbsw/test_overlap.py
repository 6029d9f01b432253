"""Intervals over random splits of one data set allow for the samples that the splits share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mindgap.core import Table, Trial
from mindgap.runs import load_results
from mindgap.runs.results import table_of
from mindgap.studies import VbswFigure5, VbswTable1, VbswTable2, VbswTable3, WhenVbswHelps

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def records_of(results: dict[str, Any]) -> list[tuple[Trial, Any]]:
    return [
        (Trial(parameters=row["parameters"], seed=row["seed"]), row["record"])
        for row in results["trials"]
    ]


def corrected(change: np.ndarray, overlap: float) -> tuple[float, float]:
    """Both ends of the interval, by the formula of Nadeau and Bengio."""
    count = len(change)
    error = math.sqrt((1 / count + overlap) * change.var(ddof=1))
    half = stats.t.ppf(0.975, count - 1) * error
    return change.mean() - half, change.mean() + half


def boston(records: list[tuple[Trial, Any]]) -> np.ndarray:
    scores = [record["scores"] for trial, record in records if trial["data"] == "Boston housing"]
    return np.array([np.mean(s["VBSW"]) - np.mean(s["baseline"]) for s in scores])


def moons(records: list[tuple[Trial, Any]]) -> np.ndarray:
    scores = [record["scores"] for trial, record in records if trial["data"] == "double moon"]
    return np.array([np.mean(s["VBSW"]) - np.mean(s["baseline"]) for s in scores])


def digits(records: list[tuple[Trial, Any]]) -> np.ndarray:
    rows = [(t["split"], r) for t, r in records if t["data"] == "MNIST"]
    change = [(s, r["exact"]["VBSW"] - r["exact"]["no weights"]) for s, r in rows]
    return np.array([np.mean([c for s, c in change if s == split]) for split in range(6)])


def rte(records: list[tuple[Trial, Any]]) -> np.ndarray:
    found = [r["adam"]["scores"] for t, r in records if t.parameters["data"] == "RTE"][:20]
    return np.array(
        [np.mean(s["VBSW"]["accuracy"]) - np.mean(s["no weights"]["accuracy"]) for s in found]
    )


def energy(records: list[tuple[Trial, Any]]) -> np.ndarray:
    wanted = {"data": "uci-energy", "model": "network"}
    found = [record for trial, record in records if dict(trial.parameters) == wanted]
    mean = np.mean([record["uniform"] for record in found])
    return np.array([100 * (r["weighted"] - r["uniform"]) / mean for r in found])


def published(records: list[tuple[Trial, Any]]) -> np.ndarray:
    found = [record for trial, record in records if not trial.parameters]  # Adam has one more
    mean = np.mean([record["baseline"] for record in found])
    return np.array([100 * (r["paper"] - r["baseline"]) / mean for r in found])


CASES: dict[str, tuple[type, str, Callable[..., np.ndarray], tuple[str, ...], float]] = {
    "Boston": (VbswTable1, "vbsw-table-1", boston, ("Boston housing", "VBSW"), 102 / 404),
    "moons, new draws": (VbswTable1, "vbsw-table-1", moons, ("double moon", "VBSW"), 0.0),
    "MNIST": (VbswTable2, "vbsw-table-2", digits, ("MNIST", "exact head, VBSW"), 1.0),
    "RTE": (VbswTable3, "vbsw-table-3", rte, ("RTE", "accuracy", "ADAM", "VBSW"), 1 / 3),
    "energy": (WhenVbswHelps, "when-vbsw-helps", energy, ("network", "uci-energy"), 1 / 3),
    "grid": (
        VbswFigure5,
        "vbsw-figure-5",
        published,
        ("VBSW, m = 8, k = 35 as published",),
        102 / 303,
    ),
}


def row_of(table: Table, head: tuple[str, ...]) -> tuple[Any, ...]:
    (found,) = [row for row in table.rows if row[: len(head)] == head]
    return found


@pytest.mark.parametrize("case", CASES)
def test_interval_is_corrected_where_splits_share_samples(case: str) -> None:
    study, name, change, head, overlap = CASES[case]
    results = load_results(RESULTS / f"{name}.json")
    table = study(**results["fields"]).summarize(records_of(results))
    low, high = table.columns.index("low"), table.columns.index("high")
    row = row_of(table, head)
    assert (row[low], row[high]) == pytest.approx(corrected(change(records_of(results)), overlap))


@pytest.mark.parametrize("name", sorted({case[1] for case in CASES.values()}))
def test_stored_tables_are_what_the_stored_records_give(name: str) -> None:
    results = load_results(RESULTS / f"{name}.json")
    study = next(case[0] for case in CASES.values() if case[1] == name)
    made = study(**results["fields"]).summarize(records_of(results))
    stored = table_of(results)
    made = dataclasses.replace(made, claims=stored.claims)  # older files have none
    assert made.to_dict() == stored.to_dict()


def test_arms_that_adam_makes_equal_are_in_no_table() -> None:
    for name, study in (("vbsw-table-2", VbswTable2), ("vbsw-table-3", VbswTable3)):
        results = load_results(RESULTS / f"{name}.json")
        table = study(**results["fields"]).summarize(records_of(results))
        assert not any("mean 1" in str(cell) for row in table.rows for cell in row)
    results = load_results(RESULTS / "vbsw-table-1.json")
    rows = VbswTable1(**results["fields"]).summarize(records_of(results)).rows
    assert [row[1] for row in rows if row[0] == "Boston housing" and "mean 1" in row[1]] == []
    assert [row[1] for row in rows if row[0] == "double moon" and "mean 1" in row[1]]
