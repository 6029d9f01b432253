"""Table: rows of a study, with intervals and the paper's numbers beside them."""

import dataclasses
import html
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Columns, rows and the facts that must stand beside them.

    ``charts`` are plain data with a ``kind``: ``"line"`` and ``"bar"`` (series with intervals),
    ``"heat"`` (a map around zero), ``"plane"`` (a map with points and lines where ``contours`` are
    zero), ``"surface"`` (heights ``z`` over ``x`` and ``y`` to be turned by hand, in the colors of
    another map ``color``, above a colored ``floor`` and with ``marks``; see
    ``mindgap.report.pages.surface``) and ``"gallery"`` (``images``, each a PNG data ``address`` and
    a ``caption``). ``"wide": False`` lets two charts stand side by side.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()
    charts: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)

    def to_markdown(self) -> str:
        """A Markdown table with its notes and its images.

        >>> print(Table(title="t", columns=("a", "b"), rows=((1, 0.5),)).to_markdown())
        | a | b |
        |---|---|
        | 1 | 0.5 |
        """
        head = [_line(self.columns), "|" + "---|" * len(self.columns)]
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        galleries = [
            part
            for chart in self.charts
            if chart.get("kind") == "gallery"
            for part in _gallery(chart)
        ]
        return "\n".join([*head, *(_line(row) for row in self.rows), *notes, *galleries])

    def __str__(self) -> str:
        cells = [self.columns, *[tuple(_cell(value) for value in row) for row in self.rows]]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        padded = [
            [cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells
        ]
        lines = ["  ".join(row).rstrip() for row in padded]
        rule = "  ".join("─" * width for width in widths)
        return "\n".join(
            [self.title, "", lines[0], rule, *lines[1:], *(f"· {note}" for note in self.notes)]
        )


def _gallery(chart: Mapping[str, Any]) -> list[str]:
    """Images that carry their captions, in HTML, which Markdown passes on."""
    figure = '<figure style="display:inline-block;width:84px;margin:4px;vertical-align:top">'
    image = '<img src="{}" alt="{}" width="80" style="image-rendering:pixelated">'
    caption = '<figcaption style="font-size:.7em;line-height:1.3">{}</figcaption></figure>'
    images = [
        figure + image.format(html.escape(str(row["address"])), text) + caption.format(text)
        for row in chart.get("images", ())
        for text in [html.escape(str(row.get("caption", "")))]
    ]
    return ["", f"**{chart.get('title', '')}**", "", f"<div>{''.join(images)}</div>"]


def _line(row: tuple[Any, ...]) -> str:
    return "| " + " | ".join(_cell(value) for value in row) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return "—"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
