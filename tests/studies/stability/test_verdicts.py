"""Verdicts of the monitor: planted faults are counted by the layer that was named."""

from __future__ import annotations

import pytest

from mindgap.core import InputError
from mindgap.studies.stability.verdicts import MonitorVerdicts


@pytest.mark.parametrize(
    "what",
    ["vanishing in convolutions", "exploding with depth", "exploding over time", "dead units"],
)
def test_a_fault_is_named_with_its_layer(what: str) -> None:
    study = MonitorVerdicts(seeds=1, first=77)
    trial = next(trial for trial in study.trials() if trial["what"] == what)
    record = study.run(trial)
    assert record["right"]
    assert record["kind"] == what.split()[0]
    assert record["layer"] == record["wanted"]
    assert record["away"] == 0


def test_neighbors_and_misses_are_counted_apart() -> None:
    study = MonitorVerdicts(seeds=4, sources="table, perceptron")
    distances = {"exploding with depth": (0, 1, 1, None), "dead units": (0, 0, 0, 1)}
    records = []
    for trial in study.trials():
        row = {"kind": "healthy", "layer": ""}
        if trial["what"] in distances:
            away = distances[trial["what"]][trial.seed - study.first]
            row = {"kind": trial["what"].split()[0], "layer": "3", "wanted": "3", "away": away}
            row["right"] = away == 0
            records.append((trial, row))
        elif trial["what"] == "table, perceptron":
            records.append((trial, {**row, "kind": "spikes" if not records else "healthy"}))
    table = study.summarize(records)
    rows = {row[0]: row[1:5] for row in table.rows}
    assert rows["exploding with depth"] == (4, 1, 1, 2)
    assert rows["dead units"] == (4, 3, 3, 1)
    assert rows["all healthy"] == (4, 3, None, None)
    assert "4 of 8 are named" in table.notes[0]
    assert "In 3 more it is the layer next to it" in table.notes[0]
    assert "False alarms: 1 of 4" in table.notes[1]


def test_unknown_sources_are_refused() -> None:
    with pytest.raises(InputError, match="sources must be names"):
        MonitorVerdicts(sources="moon")
