"""Table: rows of a study, with intervals and the paper's numbers beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Columns, rows and the facts that must stand beside them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()
    charts: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)

    def to_markdown(self) -> str:
        """A Markdown table with its notes.

        >>> print(Table(title="t", columns=("a", "b"), rows=((1, 0.5),)).to_markdown())
        | a | b |
        |---|---|
        | 1 | 0.5 |
        """
        head = [_line(self.columns), "|" + "---|" * len(self.columns)]
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join([*head, *(_line(row) for row in self.rows), *notes])

    def __str__(self) -> str:
        cells = [self.columns, *[tuple(_cell(value) for value in row) for row in self.rows]]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
        lines = ["  ".join(row).rstrip() for row in padded]
        rule = "  ".join("─" * width for width in widths)
        return "\n".join([self.title, "", lines[0], rule, *lines[1:], *(f"· {note}" for note in self.notes)])


def _line(row: tuple[Any, ...]) -> str:
    return "| " + " | ".join(_cell(value) for value in row) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return "—"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
