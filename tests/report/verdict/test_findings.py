"""Findings in words and cells, and the samples to look at as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from mindgap.core import Evidence, Finding, Interval, Suspects
from mindgap.diagnoses.diagnose import Checked
from mindgap.report.verdict.findings import (
    FEW,
    check_rows,
    summary,
    sureness,
    suspect_rows,
    suspects_csv,
    title_of,
    told,
)
from mindgap.report.wording import SPACE


def finding(**more: Any) -> Finding:
    return Finding(**{"name": "wrong-labels", "sentence": "Some.", "severity": "wrong", **more})


def plain(cells: Any) -> list[list[str]]:
    return [[cell.replace(SPACE, " ") for cell in row] for row in cells]


def test_evidence_is_never_written_in_its_favor() -> None:
    share = Evidence(name="share", value=0.104, interval=Interval(low=0.0819, high=0.12711))
    rows = [
        Evidence(name=row.name, value=row.value, interval=row.interval, percent=percent)
        for row, percent in ((share, True), (share, False))
    ]
    (shown,) = told([finding(evidence=tuple(rows))], ())
    assert plain(shown.evidence) == [
        ["share", "10 %", "8.1 % … 12.8 %"],
        ["share", "0.104", "0.0819 … 0.1272"],
    ]
    assert shown.head == ("evidence", "value", "interval")


def test_no_column_of_intervals_without_any() -> None:
    (shown,) = told([finding(evidence=(Evidence(name="count", value=12_345),))], ())
    assert (shown.head, shown.evidence) == (("evidence", "value"), (("count", "12,345"),))
    (shown,) = told([finding(evidence=(Evidence(name="x", value=float("nan"), percent=True),))], ())
    assert shown.evidence == (("x", "—"),)


@pytest.mark.parametrize(
    ("p_value", "words"),
    [
        (None, "certain: this check is exact"),
        (1e-12, "more than 99.9 % (p = 1e-12, corrected for all tests)"),
        (0.0123, "98.7 % (p = 0.012, corrected for all tests)"),
        (1.0, "0 % (p = 1, corrected for all tests)"),
    ],
)
def test_how_sure_it_is(p_value: float | None, words: str) -> None:
    assert sureness(finding(p_value=p_value)).replace(SPACE, " ") == words


def test_names_are_spelled_as_the_diagnosis_spells_them() -> None:
    row = Checked(name="stale-bn", summary="Look for old BN statistics.", outcome="found")
    assert title_of("stale-bn", [row]) == "Stale BN"
    assert title_of("stale-bn") == "Stale bn"


def several(count: int) -> Finding:
    columns = {"label": ["cat"] * count, "score": [0.123456] * count}
    return finding(
        suspects=Suspects(split="train", index=list(range(count, 0, -1)), columns=columns)
    )


def test_samples_are_shown_up_to_a_few_and_the_rest_is_counted() -> None:
    (shown,) = told([several(FEW + 3)], ())
    assert shown.columns == ("sample", "label", "score")
    assert shown.rows[0] == (str(FEW + 3), "cat", "0.1235")
    assert (len(shown.rows), shown.rest) == (FEW, "… 3 more, all in the CSV")
    assert shown.samples == "11 training samples to look at"
    (exactly,) = told([several(FEW)], ())
    assert (exactly.left, exactly.rest) == (0, "")
    (none,) = told([finding()], ())
    assert (none.samples, none.rows) == ("", ())


def test_csv_holds_all_samples_of_all_findings() -> None:
    other = finding(
        name="input-shift", suspects=Suspects(split="test", index=[7], columns={"why": ['a,\n"b']})
    )
    rows = suspect_rows([several(20), other, finding(name="over-fitting")])
    assert rows[0] == {
        "finding": "wrong-labels", "split": "train", "index": 20, "label": "cat", "score": 0.123456,
    }  # fmt: skip
    read = list(csv.DictReader(io.StringIO(suspects_csv(rows))))
    assert len(read) == 21
    assert list(read[0]) == ["finding", "split", "index", "label", "score", "why"]
    assert read[0]["score"] == "0.123456"
    assert (read[-1]["index"], read[-1]["label"], read[-1]["why"]) == ("7", "", 'a,\n"b')
    assert suspects_csv([]) == "finding,split,index\n"


def test_checks_are_counted() -> None:
    rows = [
        Checked(name="a", summary="", outcome="found", seconds=0.25),
        Checked(name="b", summary="", outcome="nothing"),
        Checked(name="c", summary="", outcome="not applicable", reason="needs test data"),
        Checked(name="d", summary="", outcome="failed", reason="ValueError"),
    ]
    assert summary(rows) == (
        "4 checks: 1 found something, 1 found nothing, 1 did not apply, 1 failed."
    )
    assert summary([]) == ""
    assert check_rows(rows)[0] == ("a", "found", "250 ms", "")
    assert check_rows(rows)[2] == ("c", "not applicable", "", "needs test data")
