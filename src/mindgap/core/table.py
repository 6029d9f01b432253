"""Table: the rows of a study, with intervals, the paper's numbers, claims, notes and charts."""

import dataclasses
import html
from collections.abc import Mapping
from typing import Any, Literal, Self

from mindgap.core.chart import Chart, Gallery
from mindgap.core.plain import fields_of

Held = Literal["yes", "direction", "no"]
TINY = "Tiny run: it shows that the study runs, with too few trials to judge anything."
HELD: Mapping[Held, str] = {"yes": "Holds", "direction": "Direction only", "no": "Not shown"}
WIDEST = 40  # characters of the rule under a last column of sentences


@dataclasses.dataclass(frozen=True)
class Claim:
    """A published statement, and whether the records of a study bear it out.

    Args:
        text: The statement, in a short sentence.
        held: ``"yes"`` if it is shown, by an exact check or a corrected test; ``"direction"`` if it
            is shown in some settings only, or weaker than published; ``"no"`` otherwise.

    >>> print(Claim("Wide networks fit random labels.", "yes"))
    Holds: Wide networks fit random labels.
    """

    text: str
    held: Held

    @classmethod
    def counted(cls, text: str, right: int, total: int) -> Self:
        """Judge a statement about several settings by how many of them show it.

        Args:
            text: The statement.
            right: In how many settings it is shown.
            total: How many settings there are.

        >>> Claim.counted("Adam takes fewer steps.", 7, 8)
        Claim(text='Adam takes fewer steps (shown in 7 of 8).', held='direction')
        """
        held: Held = "no" if not right else "yes" if right == total else "direction"
        return cls(f"{text.removesuffix('.')} (shown in {right} of {total}).", held)

    @classmethod
    def shown(cls, text: str, found: bool) -> Self:
        """Judge a statement by a single test.

        Args:
            text: The statement.
            found: Whether the test shows it.
        """
        return cls(text, "yes" if found else "no")

    def __str__(self) -> str:
        return f"{HELD[self.held]}: {self.text}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Columns, rows, claims, notes and charts: what a study found.

    Args:
        title: The heading.
        columns: The names of the columns.
        rows: One tuple per row, with one entry per column.
        notes: Sentences that belong to the numbers.
        charts: Figures of the same numbers.
        claims: Published statements without numbers to compare, each judged by the records.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    claims: tuple[Claim, ...] = ()

    def stamped(self) -> Self:
        """Return the table of a tiny run: it says so, and judges no claim.

        >>> claims = (Claim("It helps.", "yes"),)
        >>> Table(title="t", columns=("a",), rows=((1,),), claims=claims).stamped().claims
        ()
        """
        title, notes = f"{self.title} (tiny run)", (TINY, *self.notes)
        return dataclasses.replace(self, title=title, notes=notes, claims=())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            **fields_of(self),
            "charts": [chart.to_dict() for chart in self.charts],
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote, now or in an older version.

        >>> table = Table(title="t", columns=("a",), rows=((1,),))
        >>> Table.from_dict(table.to_dict()) == table
        True
        """
        return cls(
            title=str(data["title"]),
            columns=tuple(data["columns"]),
            rows=tuple(tuple(row) for row in data["rows"]),
            notes=tuple(data.get("notes", ())),
            charts=tuple(Chart.from_dict(chart) for chart in data.get("charts", ())),
            claims=tuple(Claim(**claim) for claim in data.get("claims", ())),
        )

    def to_markdown(self) -> str:
        """Return a Markdown table with its notes and its images.

        >>> print(Table(title="t", columns=("a", "b"), rows=((1, 0.5),)).to_markdown())
        | a | b |
        |---|---|
        | 1 | 0.5 |
        """
        head = [_line(self.columns), "|" + "---|" * len(self.columns)]
        told = [*self.claims, *self.notes]
        notes = ["", *(f"- {note}" for note in told)] if told else []
        galleries = [
            part for chart in self.charts if isinstance(chart, Gallery) for part in _gallery(chart)
        ]
        return "\n".join([*head, *(_line(row) for row in self.rows), *notes, *galleries])

    def __str__(self) -> str:
        cells = [self.columns, *[tuple(_cell(value) for value in row) for row in self.rows]]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        padded = [
            [cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells
        ]
        lines = ["  ".join(row).rstrip() for row in padded]
        rule = "  ".join("─" * width for width in (*widths[:-1], min(widths[-1], WIDEST)))
        return "\n".join(
            [
                *(self.title, "", lines[0], rule, *lines[1:]),
                *(f"· {note}" for note in (*self.claims, *self.notes)),
            ]
        )


def _gallery(chart: Gallery) -> list[str]:
    """Images that carry their captions, in HTML, which Markdown passes on."""
    figure = '<figure style="display:inline-block;width:84px;margin:4px;vertical-align:top">'
    image = '<img src="{}" alt="{}" width="80" style="image-rendering:pixelated">'
    caption = '<figcaption style="font-size:.7em;line-height:1.3">{}</figcaption></figure>'
    images = [
        figure + image.format(html.escape(sample.image), text) + caption.format(text)
        for sample in chart.samples
        for text in [html.escape(sample.caption)]
    ]
    return ["", f"**{chart.title}**", "", f"<div>{''.join(images)}</div>"]


def _line(row: tuple[Any, ...]) -> str:
    return "| " + " | ".join(_cell(value) for value in row) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return "—"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
