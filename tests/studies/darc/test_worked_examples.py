"""The worked examples: the theorems' own arithmetic, and a wrong digit that is noticed."""

from __future__ import annotations

import math

import pytest

from mindgap.studies import WorkedExamples


def records() -> list:
    study = WorkedExamples()
    return [(trial, study.run(trial)) for trial in study.trials()]


def test_equal_the_formulas_written_out() -> None:
    spread = math.log(1e9 / 0.1)
    expected = [
        2 * spread / 30_000 + math.sqrt(2 * spread / 10_000),
        *(
            200 * size**2 / math.sqrt(45_000) + math.sqrt(math.log(10) / 90_000)
            for size in (0.5, 0.1)
        ),
    ]
    assert [record["value"] for _, record in records()] == pytest.approx(expected, rel=1e-12)


def test_all_claims_hold_until_a_digit_is_wrong() -> None:
    found = records()
    assert [claim.held for claim in WorkedExamples().summarize(found).claims] == ["yes"] * 3
    found[1] = (found[1][0], {"value": found[1][1]["value"] + 2e-6})
    assert [claim.held for claim in WorkedExamples().summarize(found).claims] == [
        "yes",
        "no",
        "yes",
    ]
