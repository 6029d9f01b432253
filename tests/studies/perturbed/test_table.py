"""The table of PerturbedOPT: choice on validation data, paired tests, curves and notes."""

from __future__ import annotations

from typing import Any

import pytest

from mindgap.core.stats import holm, paired
from mindgap.studies.perturbed.arms import PLAIN
from mindgap.studies.perturbed.figure6 import PRESETS, arms
from mindgap.studies.perturbed.table import perturbed_table

ARMS = arms("cifar10")


def invented_record(validation: float, test: float, stopped: str = "") -> dict[str, Any]:
    final = {"train": 99.0, "validation": validation, "test": test}
    curves = {name: [value - 1, value] for name, value in final.items()}
    return {
        "epochs": [1, 2],
        "curves": curves,
        "final": final,
        "fresh": test + 2,
        "stopped": stopped,
    }


def invented_runs() -> dict[str, dict[int, Any]]:
    """Make runs whose validation accuracy is best for the middle candidate of every method."""
    runs: dict[str, dict[int, Any]] = {}
    for place, arm in enumerate(ARMS):
        best = 10.0 if place in (2, 5, 8) else 0.0
        runs[arm.name] = {
            seed: invented_record(40 + best, 50 + place + seed * (1 + 0.1 * place))
            for seed in range(4)
        }
    del runs[PRESETS["cifar10"].control][3]
    return runs


def test_the_table_chooses_on_validation_and_pairs_by_seed() -> None:
    runs = invented_runs()
    table = perturbed_table("title", ARMS, runs, ("a note",), fresh=True)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert tuple(rows) == tuple(arm.name for arm in ARMS)
    chosen = [name for name, row in rows.items() if row["chosen"] == "yes"]
    assert chosen == ["PerturbedOPT, γ = 1", "dropout 0.3", "SAM, ρ = 0.05"]
    tests = []
    for arm in ARMS:
        if arm.name != arm.control:
            pairs = [
                [runs[name][seed]["final"]["test"] for seed in range(3)]
                for name in (arm.name, arm.control)
            ]
            tests.append((arm.name, paired(*pairs)))
    for (name, test), p_value in zip(tests, holm([test.p_value for _, test in tests]), strict=True):
        assert rows[name]["change"] == pytest.approx(test.difference)
        assert (rows[name]["low"], rows[name]["high"]) == (test.interval.low, test.interval.high)
        assert rows[name]["p (Holm)"] == p_value
    assert rows[PLAIN]["change"] is None
    assert rows[PLAIN]["test"] == pytest.approx(51)  # the seed that one arm lacks is left out
    assert rows[PLAIN]["gap"] == pytest.approx(48)
    assert rows[PLAIN]["fresh"] == pytest.approx(53)
    assert "γ of 1. Its test accuracy minus that of Adam: +2.20 " in table.notes[1]
    assert "minus dropout 0.3: -3.30" in table.notes[1]
    assert "means over 3 seeds" in table.notes[0]


def test_another_test_accuracy_changes_no_choice() -> None:
    runs = invented_runs()
    runs["dropout 0.1"] = {seed: invented_record(40, 99) for seed in range(4)}
    table = perturbed_table("title", ARMS, runs, (), fresh=False)
    place = table.columns.index("chosen")
    assert [row[0] for row in table.rows if row[place]] == [
        "PerturbedOPT, γ = 1",
        "dropout 0.3",
        "SAM, ρ = 0.05",
    ]


def test_curves_are_means_with_intervals_and_diverged_runs_are_counted() -> None:
    runs = invented_runs()
    runs["PerturbedOPT, published"][1] |= {"stopped": "diverged: the loss became nan"}
    table = perturbed_table("title", ARMS, runs, (), fresh=True)
    assert "PerturbedOPT, published: 1 of 3 runs diverged." in table.notes
    bars, *lines = table.charts
    assert bars.names == ("PerturbedOPT, γ = 1", "dropout 0.3", "SAM, ρ = 0.05")
    assert [chart.y_label for chart in lines] == [
        f"{part} accuracy, %" for part in ("train", "validation", "test")
    ]  # fmt: skip
    series = {row.name: row for row in lines[2].series}
    assert list(series)[:4] == [PLAIN, "PerturbedOPT, γ = 1", "dropout 0.3", "SAM, ρ = 0.05"]
    assert series[PLAIN].x == (1, 2)
    assert series[PLAIN].y == (50, 51)
    assert series[PLAIN].low[1] < 51 < series[PLAIN].high[1]


def test_a_collapsed_published_arm_is_reported_and_not_charted() -> None:
    runs, name = invented_runs(), "PerturbedOPT, published"
    drawn = {
        row.name for row in perturbed_table("title", ARMS, runs, (), fresh=True).charts[1].series
    }
    assert name in drawn
    runs[name] = {seed: invented_record(10, 60) for seed in range(4)}
    table = perturbed_table("title", ARMS, runs, (), fresh=True)
    assert {row.name for row in table.charts[1].series} == drawn - {name}
    assert any(
        f"leave out {name}, whose validation accuracy of 10.0 %" in note for note in table.notes
    )
    assert name in [row[0] for row in table.rows]


def test_one_seed_makes_no_rows() -> None:
    one = {name: {0: found[0]} for name, found in invented_runs().items()}
    assert perturbed_table("title", ARMS, one, (), fresh=True).rows == ()
