"""The report as Markdown, for an issue, a pull request or a model card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mindgap.core import Advice
from mindgap.report import text as terminal
from mindgap.report.parts import Card, Verdict, by_topic
from mindgap.report.verdict import findings
from mindgap.report.verdict.findings import Told

if TYPE_CHECKING:
    from mindgap.report.report import Report


def text(report: Report) -> str:
    """Return the verdict, what was found, tables of measures and bounds, and samples."""
    missing = [f"`{name}`: {reason}" for name, reason in terminal.missing(report)]
    care = [f"`{name}`: {words}" for name, words in terminal.caveats(report)]
    measured = [card for card in report.measures if card.defined]
    told = findings.told(report.findings, report.checked)
    explained = [
        f"**{one.title}.** {one.finding.sentence} Follows from: {one.explained_by}."
        for one in told
        if one.explained_by
    ]
    blocks = [
        f"# {safe(report.title)}",
        *verdict(report.verdict),
        *(_finding(one, report.verdict.kind) for one in told if not one.explained_by),
        section("Explained by the above", _items(explained)),
        section("What was checked", _checks(report)),
        section(
            "Measures",
            "\n\n".join(
                f"### {topic}\n\n{table(terminal.measure_head(measured), rows)}"
                for topic, rows in _rows_by_topic(measured)
            ),
        ),
        section(
            "Bounds",
            table(
                terminal.BOUND_HEAD,
                [terminal.bound_row(c) for c in terminal.tightest_first(report.bounds)],
            ),
        ),
        *(
            section(f"{title}: {chart.title}", table(*terminal.gallery_table(chart)))
            for title, chart in terminal.galleries(report)
        ),
        section("Read with care", _items(care)),
        section("Not measured here", _items(missing)),
        f"*mindgap {report.provenance.get('mindgap', '')}, {report.created[:10]}*",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _rows_by_topic(cards: Sequence[Card]) -> list[tuple[str, list[tuple[str, ...]]]]:
    return [(topic, terminal.measure_rows(group, cards)) for topic, group in by_topic(cards)]


def verdict(told: Verdict) -> list[str]:
    """Return the headline, the sentences and what to do."""
    return [
        f"**{told.label}.** {safe(told.headline)}",
        _items(told.sentences),
        section("What to do", _advice(told.advice)),
    ]


def _finding(told: Told, said: str) -> str:
    """Return a finding; the words of the one that the verdict is about are not repeated."""
    finding = told.finding
    words = [
        f"**{finding.severity}.** {safe(finding.sentence)}",
        _items(finding.sentences),
        _advice(finding.advice),
    ]
    proof = [
        table(told.head, told.evidence),
        f"How sure: {told.sureness}.",
        f"{told.samples}:" if told.rows else "",
        table(told.columns, told.rows),
        told.rest,
    ]
    return section(
        told.title,
        "\n\n".join(filter(None, [*([] if finding.name == said else words), *proof])),
    )


def _advice(advice: Sequence[Advice]) -> str:
    """Return what to do as a list, with code to paste below its item."""
    lines = []
    for one in advice:
        lines.append(f"- {f'`{one.remedy}`: ' if one.remedy else ''}{safe(one.text)}")
        if one.code:
            fenced = ["```python", *one.code.splitlines(), "```"]
            lines += ["", *(f"  {line}".rstrip() for line in fenced), ""]
    return "\n".join(lines).rstrip()


def _checks(report: Report) -> str:
    if not report.checked:
        return ""
    rows = findings.check_rows(report.checked)
    # GitHub and most other readers fold this.
    return "\n\n".join(
        [
            f"<details><summary>{findings.summary(report.checked)}</summary>",
            table(findings.CHECK_HEAD, rows),
            "</details>",
        ]
    )


def section(title: str, body: str) -> str:
    """Return a body below its heading, or nothing if it is empty."""
    return f"## {title}\n\n{body}" if body else ""


def _items(lines: Sequence[str]) -> str:
    return "\n".join(f"- {safe(line)}" for line in lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, or nothing if it has no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(safe(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def safe(words: str) -> str:
    """Return words in which nothing is markup."""
    return words.replace("<", "&lt;").replace("\n", " ")
