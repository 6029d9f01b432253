"""Claims follow from the records: the kept ones, and ones in which the effect is taken away."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindgap.core import Trial
from mindgap.runs import load_results
from mindgap.runs.results import claims_of, study_of
from mindgap.studies.vbsw.when_it_helps import PAIRS

RESULTS = Path(__file__).parents[2] / "docs" / "results"
Change = Callable[[dict[str, Any], Any], None]


def held(name: str, change: Change | None = None) -> list[str]:
    """Judge kept records, each changed first."""
    results = load_results(RESULTS / f"{name}.json")
    records = []
    for trial in results["trials"]:
        record = copy.deepcopy(trial["record"])
        if change is not None:
            change(record, trial)
        records.append((Trial(parameters=trial["parameters"], seed=trial["seed"]), record))
    study: Any = study_of(results)
    return [claim.held for claim in study.summarize(records).claims]


def flat(record: dict[str, Any], trial: Any) -> None:
    """No peak: the loss at the threshold is that of the wide model, up to a little noise."""
    if "1" in record and isinstance(record["1"], dict):
        record["1"] = {
            name: value * (1 + (trial["seed"] % 3 - 1) / 99) for name, value in record["10"].items()
        }


def never(record: dict[str, Any], trial: Any) -> None:
    """No run generalizes."""
    record["test passes"] = None


def small_everywhere(record: dict[str, Any], trial: Any) -> None:
    """Large batches end where small ones do."""
    for name in ("sharpness 0.001", "sharpness 0.0005", "eigenvalue", "trace", "gap", "test_error"):
        record[name] = 0.1 + trial["seed"] / 1000


def many_regions(record: dict[str, Any], trial: Any) -> None:
    """Deep networks have far more regions than any bound allows."""
    record["before"] = record["after"] = 10 ** (8 * trial["parameters"]["depth"]) + trial["seed"]


def large_errors(record: dict[str, Any], trial: Any) -> None:
    """No construction is near its target."""
    record["errors"] = [9.0] * len(record["errors"])


def convex(record: dict[str, Any], trial: Any) -> None:
    """A bowl, which is the same for all batches."""
    places = range(len(record["surface"]))
    record["surface"] = [[1.0 + x * x + y * y for x in places] for y in places]
    record["spread"] = 1.0


def helped(record: dict[str, Any], trial: Any) -> None:
    """Weights halve the error on every data set."""
    for arm, control in PAIRS.items():
        record[control], record[arm] = 1.0 + trial["seed"] / 1000, 0.5 + trial["seed"] / 1000


@pytest.mark.parametrize(
    ("name", "change", "before", "after"),
    [
        ("trained-regions", many_regions, ["yes", "direction", "no"], ["no", "no", "yes"]),
        ("universal-approximation", large_errors, ["yes"], ["no"]),
        ("two-parameter-surface", convex, ["yes"] * 2, ["no"] * 2),
        ("when-vbsw-helps", helped, ["no"], ["yes"]),
        ("double-descent-width", flat, ["yes"] * 3, ["no"] * 3),
        ("large-batch", small_everywhere, ["yes"] * 2, ["no"] * 2),
        ("grokking", never, ["yes", "yes", "no", *["yes"] * 4], ["no"] * 7),
    ],
)
def test_a_claim_falls_with_its_effect(
    name: str, change: Change, before: list[str], after: list[str]
) -> None:
    assert held(name) == before
    assert held(name, change) == after


def test_the_opposite_of_a_claim_is_not_its_direction() -> None:
    def reverse(record: dict[str, Any], trial: Any) -> None:
        record["steps"] = [1000 - step for step in record["steps"]]

    found = held("conditioning-optimizers", reverse)
    assert set(held("conditioning-optimizers")) == {"direction"}
    assert set(found) <= {"no", "direction"}
    assert "no" in found


def test_older_files_are_judged_from_their_records() -> None:
    results = load_results(RESULTS / "overfitting-remedies.json")
    del_claims = {**results, "table": {k: v for k, v in results["table"].items() if k != "claims"}}
    found = claims_of(del_claims)
    assert [claim.text.split(" helps")[0] for claim in found] == [
        *("Weight decay", "Early stopping", "Dropout", "Snapshot ensemble", "Augmentation")
    ]
