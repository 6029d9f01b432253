"""Findings in words and cells: the same on the page, in the terminal and in Markdown."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mindgap.core import Evidence, Finding
from mindgap.report import wording

if TYPE_CHECKING:
    from mindgap.diagnoses.diagnose import Checked

FEW = 8  # samples in a table that is read; the CSV file holds all
SURE = 1e-3  # smaller p-values are "> 99.9 %": nobody acts differently on more digits
FLAGS = {"wrong": "bad", "suspect": "warn", "note": "dull"}
CHECK_HEAD = ("check", "outcome", "CPU time", "reason")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """A finding as a reader sees it.

    Args:
        finding: The finding.
        title: Its name as a heading.
        flag: The color of its severity.
        sureness: How sure it is, in words.
        evidence: Rows of name and value, and of the interval if any has one.
        columns: The names of the columns of its samples.
        rows: The cells of its first samples.
        left: How many samples are left out.
        explained_by: The title of the finding that explains it, or empty.
    """

    finding: Finding
    title: str
    flag: str
    sureness: str
    evidence: tuple[tuple[str, ...], ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    left: int = 0
    explained_by: str = ""

    @property
    def head(self) -> tuple[str, ...]:
        """The names of the columns of the evidence."""
        return ("evidence", "value", "interval")[: max(map(len, self.evidence), default=0)]

    @property
    def samples(self) -> str:
        """How many samples there are to look at, in words."""
        found = self.finding.suspects
        if found is None:
            return ""
        which = "training sample" if found.split == "train" else "test sample"
        return f"{wording.count(len(found.index), which)} to look at"

    @property
    def rest(self) -> str:
        """What is said below a table that does not show all samples."""
        return f"… {self.left:,} more, all in the CSV" if self.left > 0 else ""


def told(findings: Sequence[Finding], checked: Sequence[Checked]) -> list[Told]:
    """Put findings in words, in their order.

    Args:
        findings: What was found.
        checked: What was checked, whose sentences say how names are spelled.
    """
    return [_told(finding, checked) for finding in findings]


def _told(finding: Finding, checked: Sequence[Checked]) -> Told:
    suspects = finding.suspects
    count = 0 if suspects is None else len(suspects.index)
    return Told(
        finding=finding,
        title=title_of(finding.name, checked),
        flag=FLAGS[finding.severity],
        sureness=sureness(finding),
        evidence=_without_empty([_evidence(row) for row in finding.evidence]),
        columns=() if suspects is None else ("sample", *suspects.columns),
        rows=tuple(
            tuple(wording.cell(value) for name, value in row.items() if name not in _PLACE)
            for row in _first(finding, FEW)
        ),
        left=max(count - FEW, 0),
        explained_by=title_of(finding.explained_by, checked) if finding.explained_by else "",
    )


_PLACE = ("finding", "split")
_PREFIX = re.compile(r"^((?:late )?(?:over|under)) ", re.IGNORECASE)


def title_of(name: str, checked: Sequence[Checked] = ()) -> str:
    """Return the name of a diagnosis as a heading.

    >>> title_of("leaked-samples"), title_of("late-over-fitting")
    ('Leaked samples', 'Late over-fitting')
    """
    words = wording.title(name, next((row.summary for row in checked if row.name == name), ""))
    return _PREFIX.sub(r"\1-", words)


def sureness(finding: Finding) -> str:
    """Say how sure a finding is, after the correction for all tests.

    >>> sureness(Finding(name="leak", sentence="", severity="wrong"))
    'certain: this check is exact'
    >>> sureness(Finding(name="x", sentence="", severity="wrong", p_value=1e-9))
    'more than 99.9\\xa0% (p = 1e-09, corrected for all tests)'
    >>> sureness(Finding(name="x", sentence="", severity="wrong", p_value=0.0))
    'more than 99.9\\xa0% (p < 1e-300, corrected for all tests)'
    """
    if finding.p_value is None:
        return "certain: this check is exact"
    shown = (
        f"more than {wording.percent(1 - SURE)}"
        if finding.p_value < SURE
        else wording.at_least(finding.confidence)
    )
    return f"{shown} (p {wording.p_value(finding.p_value)}, corrected for all tests)"


def _evidence(row: Evidence) -> tuple[str, str, str]:
    value = wording.percent(row.value) if _is_share(row) else wording.number(row.value)
    if row.interval is None:
        return row.name, value, ""
    if not _is_share(row):
        return row.name, value, wording.span(row.interval)
    low, high = wording.at_least(row.interval.low), wording.at_most(row.interval.high)
    return row.name, value, f"{low} … {high}"


def _without_empty(rows: Sequence[tuple[str, str, str]]) -> tuple[tuple[str, ...], ...]:
    """Leave out the intervals if there are none."""
    return tuple(rows) if any(row[2] for row in rows) else tuple(row[:2] for row in rows)


def _is_share(row: Evidence) -> bool:
    return row.percent and row.value == row.value


def suspect_rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return one row per sample to look at, over all findings, the worst first.

    Args:
        findings: What was found.
    """
    return [row for finding in findings for row in _first(finding, None)]


def _first(finding: Finding, most: int | None) -> Iterator[dict[str, Any]]:
    suspects = finding.suspects
    if suspects is None:
        return
    for place, index in enumerate(suspects.index[:most]):
        columns = {name: column[place] for name, column in suspects.columns.items()}
        yield {"finding": finding.name, "split": suspects.split, "index": index, **columns}


def suspects_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write samples to look at as CSV, with the columns of all findings.

    Args:
        rows: What :func:`suspect_rows` returned.

    >>> print(suspects_csv([{"finding": "leak", "split": "test", "index": 3, "label": "cat"}]))
    finding,split,index,label
    leak,test,3,cat
    <BLANKLINE>
    """
    names = dict.fromkeys(["finding", "split", "index", *(name for row in rows for name in row)])
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def check_rows(checked: Sequence[Checked]) -> list[tuple[str, ...]]:
    """Return every check as cells, in the order of what was found first."""
    return [
        (row.name, row.outcome, wording.seconds(row.seconds) if row.seconds else "", row.reason)
        for row in checked
    ]


def summary(checked: Sequence[Checked]) -> str:
    """Say in a line what was checked.

    Args:
        checked: What each diagnosis was good for; may be empty.
    """
    if not checked:
        return ""
    count = {
        outcome: sum(row.outcome == outcome for row in checked)
        for outcome in ("found", "nothing", "not applicable", "failed")
    }
    parts = [
        f"{count['found']:,} found something",
        f"{count['nothing']:,} found nothing",
        f"{count['not applicable']:,} did not apply" if count["not applicable"] else "",
        f"{count['failed']:,} failed" if count["failed"] else "",
    ]
    return f"{wording.count(len(checked), 'check')}: {', '.join(filter(None, parts))}."
