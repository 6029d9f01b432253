"""The table of false alarms, from records made by hand."""

from __future__ import annotations

from mindgap.core import Trial
from mindgap.studies.diagnoses.false_alarms import FalseAlarms


def told(source: str, *findings: tuple[str, str, str]) -> tuple[Trial, dict[str, object]]:
    rows = [
        {"name": name, "severity": severity, "explained_by": by} for name, severity, by in findings
    ]
    return Trial(parameters={"source": source}), {"findings": rows}


def test_the_severest_finding_that_nothing_explains_counts() -> None:
    table = FalseAlarms().summarize(
        [
            told("a"),
            told("a", ("shortcut", "wrong", ""), ("over-fitting", "note", "")),
            told("a", ("leak", "suspect", ""), ("over-fitting", "wrong", "leak")),
            told("b", ("over-fitting", "note", "")),
        ]
    )
    assert [row[:3] + row[4:6] for row in table.rows] == [
        ("a", 3, 1, 1, 0),
        ("b", 1, 0, 0, 1),
        ("all", 4, 1, 1, 1),
    ]
    assert table.rows[0][6] == "shortcut (wrong) 1, over-fitting (note) 1, leak (suspect) 1"
    assert table.rows[2][3] == "[0.6, 80.6] %"  # Clopper–Pearson, rounded outwards
