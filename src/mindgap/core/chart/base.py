"""Chart: the base of all kinds, the way back from plain data, and data in words."""

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from mindgap.core.chart.numbers import finite, short
from mindgap.core.chart.parts import Mark, Piece, Points, Series
from mindgap.core.checks import choice
from mindgap.core.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart(Piece):
    """Base of all charts.

    Args:
        title: The heading.
        x_label: What the first axis shows.
        y_label: What the second axis shows.
        caption: A sentence below the chart.
        alt: What is seen, in words; derived from the data if empty (see ``description``).
        wide: Whether the chart takes a whole row of the page; two others share one.
        terminal: Whether a report in the terminal shows the chart as well, as text.
    """

    kind: ClassVar[str] = ""

    title: str = ""
    x_label: str = ""
    y_label: str = ""
    caption: str = ""
    alt: str = ""
    wide: bool = True
    terminal: bool = False

    @property
    def description(self) -> str:
        """What is seen, in words: ``alt``, or a sentence made from the data."""
        return self.alt or " ".join(
            filter(None, [f"{self.title}." if self.title else "", self.told()])
        )

    def told(self) -> str:
        """Tell the data in words."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with the ``kind`` of chart."""
        return {"kind": self.kind, **super().to_dict()}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Chart":
        """Read back what :meth:`to_dict` wrote, now or in an older version.

        >>> from mindgap.core import Line, Series
        >>> line = Line(title="t", series=[Series(name="a", x=[1, 2], y=[3, 4])])
        >>> Chart.from_dict(line.to_dict()) == line
        True
        """
        fields = _upgraded(data)
        kinds = {cls.kind: cls for cls in Chart.__subclasses__()}
        cls = kinds[choice("kind of chart", str(fields.pop("kind", "")), kinds)]
        parts = {
            field.name: field.metadata["part"]
            for field in dataclasses.fields(cls)
            if "part" in field.metadata and field.name in fields
        }
        try:
            for name, part in parts.items():
                fields[name] = tuple(part(**row) for row in fields[name])
            return cls(**fields)
        except TypeError as error:
            raise InputError(
                f"A {cls.kind} chart must have fields that this version knows, got: {error}. "
                "Upgrade mindgap."
            ) from error

    def __str__(self) -> str:
        # The text form and the renderer build on charts, so they are imported when they are needed.
        return str(importlib.import_module("mindgap.core.chart.text").text(self))

    def _repr_html_(self) -> str:
        return str(importlib.import_module("mindgap.report.draw").notebook(self))


def _upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the fields of a chart that version 0.1 saved."""
    fields = dict(data)
    if fields.get("kind") in ("heat", "plane"):
        fields |= {"kind": "heatmap", "diverging": fields["kind"] == "heat"}
        fields = {name: fields[name] for name in fields if name not in ("x_scale", "y_scale")}
    if fields.get("kind") == "gallery" and "samples" not in fields:
        images = fields.pop("pictures", None) or fields.pop("images", ())
        fields["samples"] = [
            {"image": row["address"], "caption": row.get("caption", "")} for row in images
        ]
    return fields


def range_of(values: Sequence[Any], share: bool = False) -> str:
    """Tell the range of the finite values."""
    found = finite([values])
    if not found:
        return "without values"
    low, high = min(found), max(found)
    if low == high:
        return f"at {short(low, share)}"
    return f"from {short(low, share)} to {short(high, share)}"


def listed(row: Series, share: bool) -> str:
    """Tell every value of a short series, or the range of a long one."""
    if len(row.x) > 8:
        return range_of(row.y, share)
    return ", ".join(f"{x} {short(y, share)}" for x, y in zip(row.x, row.y, strict=True))


def grouped(groups: Sequence[Points]) -> str:
    """Tell how many points every group has."""
    return ", ".join(f"{len(row.x):,} points {row.name}".strip() for row in groups)


def axes_of(chart: Chart, what: str) -> str:
    """Tell what is drawn against what."""
    if chart.x_label and chart.y_label:
        return f"{what} of {chart.y_label} against {chart.x_label}"
    return f"{what} of {chart.x_label or chart.y_label}" if chart.x_label or chart.y_label else what


def marked(marks: Sequence[Mark], more: Sequence[str] = ()) -> str:
    """Tell the marked places, each with more words if given."""
    where = [", ".join(short(v) for v in (mark.x, mark.y) if v is not None) for mark in marks]
    places = [
        ", ".join(filter(None, [f"{mark.name} at {place}".strip(), told]))
        for mark, place, told in zip(marks, where, more or [""] * len(marks), strict=True)
    ]
    return f" Marked: {'; '.join(places)}." if places else ""
