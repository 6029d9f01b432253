"""The table of planted problems, from records made by hand."""

from __future__ import annotations

from mindgap.core import Trial
from mindgap.studies.diagnoses.planted import WEAK, PlantedProblems


def record(*names: str) -> dict[str, object]:
    found = [{"name": name, "severity": "wrong", "explained_by": ""} for name in names]
    return {"findings": found}


def told(name: str, kind: str, *names: str, strength: float = 1.0) -> tuple[Trial, dict]:
    trial = Trial(parameters={"name": name, "kind": kind, "strength": strength})
    return trial, {**record(*names), "first": names[:1] == (name,), "found": name in names}


def test_counts_by_kind_and_names_what_came_first_instead() -> None:
    table = PlantedProblems().summarize(
        [
            told("shortcut", "image", "shortcut", "over-fitting"),
            told("shortcut", "image", "over-fitting", "shortcut"),
            told("shortcut", "table"),
            told("shortcut", "table", "shortcut", strength=0.6),
        ]
    )
    assert table.rows == (
        ("shortcut", "usual", "1/2", "0/1", None, "1/3", "2/3", "over-fitting 1, nothing 1"),
        ("shortcut", "weak", None, "1/1", None, "1/1", "1/1", "—"),
    )
    assert "Usual plants: 1 of 3 named first. Weaker plants: 1 of 1 named first." in table.notes


def test_weak_plants_are_those_of_known_diagnoses() -> None:
    trials = PlantedProblems(seeds=1).trials()
    names = {trial["name"] for trial in trials}
    assert set(WEAK) <= names
    weak = [trial for trial in trials if trial["strength"] != 1]
    assert {trial["name"] for trial in weak} == set(WEAK)
    assert len(PlantedProblems(seeds=1, weak=False).trials()) == len(trials) - len(weak)
