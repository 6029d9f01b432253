"""The report as Markdown, for an issue, a pull request or a model card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mindgap.report import text as terminal

if TYPE_CHECKING:
    from mindgap.report.report import Report


def text(report: Report) -> str:
    """Return the verdict, suggestions, tables of measures and bounds, and samples to look at."""
    verdict = report.verdict
    suggestions = [
        f"{f'`{advice.remedy}`: ' if advice.remedy else ''}{advice.text}"
        for advice in verdict.advice
    ]
    missing = [f"`{name}`: {reason}" for name, reason in terminal.missing(report)]
    blocks = [
        f"# {_safe(report.title)}",
        f"**{verdict.label}.** {verdict.headline}",
        _items(verdict.sentences),
        _section("What to try next", _items(suggestions)),
        _section(
            "Measures",
            _table(
                terminal.MEASURE_HEAD,
                [terminal.measure_row(c) for c in report.measures if c.defined],
            ),
        ),
        _section(
            "Bounds",
            _table(
                terminal.BOUND_HEAD,
                [terminal.bound_row(c) for c in terminal.tightest_first(report.bounds)],
            ),
        ),
        *(
            _section(f"{title}: {chart.title}", _table(*terminal.gallery_table(chart)))
            for title, chart in terminal.galleries(report)
        ),
        _section("Not measured here", _items(missing)),
        f"*mindgap {report.provenance.get('mindgap', '')}, {report.created[:10]}*",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def _items(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_safe(line)}" for line in lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(_safe(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _safe(words: str) -> str:
    return words.replace("<", "&lt;").replace("\n", " ")
