"""The seven kinds of charts."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mindgap.core.chart.base import Chart, axes_of, grouped, listed, marked, range_of
from mindgap.core.chart.numbers import finite, known, short
from mindgap.core.chart.parts import (
    SCALES,
    Contour,
    Mark,
    Piece,
    Place,
    Points,
    Sample,
    Scale,
    Series,
    Ticks,
    Value,
    same,
)
from mindgap.core.checks import choice
from mindgap.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor  # a driver of trials reads tables without torch

BEYOND = "The outermost bins also count what lies beyond them."
TAIL = 0.995  # of the values, that bins spread over; the rest is counted in the last one


def _several(part: type[Piece]) -> Any:
    """Return a field that holds parts of a chart, none by default."""
    return dataclasses.field(default=(), metadata={"part": part})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line(Chart):
    """Curves over numbers, each with a band for its intervals.

    Args:
        series: The curves.
        x_scale: Scale of the first axis: "linear", "log", "category" or empty for automatic.
        y_scale: Scale of the second axis.
        percent: Whether values are shares, to be written as percent.
        from_zero: Whether the second axis begins at zero.
        marks: Places to point out.
        right: Curves of another quantity, over an axis of their own at the right.
        right_label: What that axis shows.
        ticks: Places on the first axis, one strip per group below the curves.

    >>> print(Line(title="Loss", series=[Series(name="test", x=[1, 2, 3], y=[0.9, 0.4, 0.5])]))
    Loss
      test  █▁▂  0.9 → 0.5 (0.4 to 0.9)
    """

    kind = "line"

    series: Sequence[Series] = _several(Series)
    x_scale: Scale = ""
    y_scale: Scale = ""
    percent: bool = False
    from_zero: bool = False
    marks: Sequence[Mark] = _several(Mark)
    right: Sequence[Series] = _several(Series)
    right_label: str = ""
    ticks: Sequence[Ticks] = _several(Ticks)

    def _check(self) -> None:
        choice("x_scale", self.x_scale, SCALES)
        choice("y_scale", self.y_scale, SCALES)

    def told(self) -> str:
        """Tell the range of every curve and of the ticks."""
        parts = [
            f"{row.name or self.y_label} {range_of(row.y, self.percent)}" for row in self.series
        ]
        parts += [f"{row.name or self.right_label} {range_of(row.y)}" for row in self.right]
        parts += [f"{row.name}: {len(row.x):,} ticks {range_of(row.x)}" for row in self.ticks]
        return f"{axes_of(self, 'Line chart')}: {'; '.join(parts)}." + marked(self.marks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar(Chart):
    """Bars for named values, with whiskers for their intervals.

    Args:
        series: The bars; ``x`` holds their names. Several series appear side by side.
        stacked: Whether the series are parts of one bar each.
        horizontal: Whether bars lie; the renderer decides by the length of the names if None.
        percent: Whether values are shares, to be written as percent.
        y_scale: Scale of the values: "linear", "log" or empty.
        marks: Values to point out, by ``y``.
        muted: Names of bars to be drawn gray and hatched.
        notes: One text per name, written at the end of its bar.
        top: The largest value that is drawn; longer bars are cut off.

    >>> print(Bar(title="Error", series=[Series(x=["a", "b"], y=[0.1, 0.4])], percent=True))
    Error
      a  █████                 10 %
      b  ████████████████████  40 %
    """

    kind = "bar"

    series: Sequence[Series] = _several(Series)
    stacked: bool = False
    horizontal: bool | None = None
    percent: bool = False
    y_scale: Scale = ""
    marks: Sequence[Mark] = _several(Mark)
    muted: Sequence[str] = ()
    notes: Sequence[str] = ()
    top: float | None = None

    def _check(self) -> None:
        choice("y_scale", self.y_scale, SCALES)
        if self.notes:
            same("notes of a bar chart", self.notes, "names", self.names)

    @classmethod
    def of(cls, values: Mapping[str, float], *, most: int = 40, **fields: Any) -> Bar:
        """Return one bar per name, in the given order; only the largest where there are many.

        Args:
            values: Names and values.
            most: Bars that still fit on a screen.
            **fields: Other fields of the chart.
        """
        largest = set(sorted(values, key=lambda name: -abs(values[name]))[:most])
        kept = [name for name in values if name in largest]
        left_out = {"caption": f"The {most} largest of {len(values):,}."}
        return cls(
            series=(Series(x=kept, y=[values[name] for name in kept]),),
            **{**(left_out if len(kept) < len(values) else {}), **fields},
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all bars, in the order of their first appearance."""
        if len({tuple(row.x) for row in self.series}) == 1:
            return tuple(map(str, self.series[0].x))
        return tuple(dict.fromkeys(str(name) for row in self.series for name in row.x))

    def told(self) -> str:
        """Tell every bar of a small chart, or the range of a large one."""
        rows = [f"{row.name} {listed(row, self.percent)}".strip() for row in self.series]
        return f"{axes_of(self, 'Bar chart')}: {'; '.join(rows)}." + marked(self.marks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scatter(Chart):
    """Points of the plane; every pair of coordinates where points have more than two.

    Args:
        points: Groups of points.
        more_labels: What the further coordinates show, one name each.
        value_label: What the color of points with ``values`` shows; without it there is no scale.
        x_scale: Scale of the first axis: "linear", "log" or empty.
        y_scale: Scale of the second axis.
        marks: Places to point out.
        diagonal: Whether to draw the line on which both coordinates are equal.

    >>> print(Scatter(x_label="gap", y_label="norm", points=[Points(x=[1, 2], y=[3, 5])]))
    Scatter plot of norm against gap
      points  2, x from 1 to 2, y from 3 to 5
    """

    kind = "scatter"

    points: Sequence[Points] = _several(Points)
    more_labels: Sequence[str] = ()
    value_label: str = ""
    x_scale: Scale = ""
    y_scale: Scale = ""
    marks: Sequence[Mark] = _several(Mark)
    diagonal: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """What every coordinate shows."""
        return (self.x_label, self.y_label, *self.more_labels)

    def _check(self) -> None:
        choice("x_scale", self.x_scale, SCALES)
        choice("y_scale", self.y_scale, SCALES)
        for row in self.points:
            same(f"more of the points {row.name!r}", row.more, "more_labels", self.more_labels)

    def told(self) -> str:
        """Say how many points there are, and where."""
        head = axes_of(self, "Scatter plot")
        if self.more_labels:
            head = f"Scatter plots of every pair of {', '.join(self.labels)}"
        color = f" Color: {self.value_label}." if self.value_label else ""
        line = " A line shows where both are equal." if self.diagonal else ""
        return f"{head}: {grouped(self.points)}.{color}{line}" + marked(self.marks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram(Chart):
    """How many samples fall into every bin.

    Args:
        edges: The ends of the bins, increasing.
        counts: For every group of samples its name and one count per bin.
        shares: Whether to draw shares of each group as outlines, so that groups of unequal size
            can be compared; otherwise counts, the later group in front.
        y_scale: Scale of the counts: "log" or "linear"; the renderer decides by the counts if empty.
        marks: Places to point out, by ``x``.

    >>> print(Histogram(title="Loss", edges=[0, 1, 2], counts={"train": [3, 1]}))
    Loss
      train  █▃  4 in 2 bins from 0 to 2
    """

    kind = "histogram"

    edges: Sequence[float] = ()
    counts: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    shares: bool = False
    y_scale: Scale = ""
    marks: Sequence[Mark] = _several(Mark)

    @classmethod
    def of(
        cls, groups: Mapping[str, Tensor], *, bins: int = 30, clip_low: bool = True, **fields: Any
    ) -> Histogram:
        """Count values of several groups in common bins; the outermost hold what lies beyond.

        Args:
            groups: For every group its name and one value per sample.
            bins: Number of bins.
            clip_low: Whether the lowest bin may leave out the lowest half percent, as the highest
                does: a handful of extreme values would press all others into one bin.
            **fields: Other fields of the chart.

        >>> import torch
        >>> Histogram.of({"loss": torch.tensor([0.0, 1.0, 1.0, 2.0])}, bins=2).counts
        {'loss': (1, 3)}
        """
        import torch

        values = {name: group.detach().double().cpu() for name, group in groups.items()}
        every = torch.cat(list(values.values()))
        edges = _edges(every, bins, clip_low)
        if bool(((every < edges[0]) | (every > edges[-1])).any()):
            fields = {"caption": BEYOND, **fields}
        counts = {name: _counts(group, edges) for name, group in values.items()}
        return cls(edges=edges.tolist(), counts=counts, **fields)

    def _check(self) -> None:
        choice("y_scale", self.y_scale, SCALES)
        if len(self.edges) < 2 or any(
            low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)
        ):
            raise InputError(
                "edges of a histogram must be at least two increasing numbers, got "
                f"{list(self.edges)[:4]}. Pass the ends of the bins in order."
            )
        for name, counts in self.counts.items():
            if len(counts) != len(self.edges) - 1:
                raise InputError(
                    f"counts of {name!r} must hold one number per bin, {len(self.edges) - 1} in "
                    f"all, got {len(counts)}. Count again."
                )

    def told(self) -> str:
        """Tell the size of every group and the range of the bins."""
        groups = ", ".join(f"{sum(counts):,} {name}" for name, counts in self.counts.items())
        ends = f"from {short(self.edges[0])} to {short(self.edges[-1])}"
        return f"Histogram of {self.x_label or 'values'} {ends}: {groups}."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heatmap(Chart):
    """A number for every place of a plane, as color, with points and contour lines on top.

    Args:
        x: Places on the first axis, as numbers or names.
        y: Places on the second axis.
        z: One row per y, one entry per x, ``None`` where nothing is known; empty if only points
            and contours are to be shown.
        z_label: What the color shows.
        diverging: Whether the colors tell numbers above zero from numbers below it.
        points: Groups of points on top.
        contours: Lines where another map is zero.
        samples: Samples behind cells, each with its ``cell``; a click on the cell shows them.

    >>> print(Heatmap(title="Mistakes", x=["a", "b"], y=["a", "b"], z=[[None, 3], [1, None]]))
    Mistakes
      a  ·█
      b  ░·
      from 1 to 3
    """

    kind = "heatmap"

    x: Sequence[Place] = ()
    y: Sequence[Place] = ()
    z: Sequence[Sequence[Value]] = ()
    z_label: str = ""
    diverging: bool = False
    points: Sequence[Points] = _several(Points)
    contours: Sequence[Contour] = _several(Contour)
    samples: Sequence[Sample] = _several(Sample)

    def _check(self) -> None:
        for sample in self.samples:
            if not _is_cell(sample.cell, len(self.y), len(self.x)):
                raise InputError(
                    "The cell of a sample must be a row and a column of the heatmap, got "
                    f"{sample.cell!r} in {len(self.y)} rows and {len(self.x)} columns. Correct it."
                )
        maps = [("z", self.z)] if self.z else []
        for name, rows in [*maps, *((f"contour {row.name!r}", row.z) for row in self.contours)]:
            _fits(self, name, rows, least=1)

    def told(self) -> str:
        """Tell the range of the map, the points and the lines."""
        parts = [f"{self.z_label or 'values'} {range_of(finite(self.z))}"] if self.z else []
        parts += [grouped(self.points)] if self.points else []
        lines = dict.fromkeys(row.name for row in self.contours)
        parts += [f"lines: {', '.join(lines)}"] if lines else []
        return f"{axes_of(self, 'Map')}: {'; '.join(parts)}."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Surface(Chart):
    """Heights over a plane, to be turned by hand.

    Args:
        x: Places on the first axis, increasing.
        y: Places on the second axis, increasing.
        z: Heights: one row per y, one entry per x; ``None`` leaves a hole.
        color: Another map of that shape, shown as color; the height if empty.
        floor: A map for the plane below the surface.
        marks: Places to point out.
        paths: Lines through points in their order; ``values`` are their heights.
        top: The largest height that is drawn.
        z_label: What the height shows.
        color_label: What the color shows.
        floor_label: What the color of the floor shows.

    >>> bowl = [[x * x + y * y for x in (-1, 0, 1)] for y in (-1, 0, 1)]
    >>> Surface(x=[-1, 0, 1], y=[-1, 0, 1], z=bowl, z_label="loss").description
    'Surface over x and y: height loss from 0 to 2.'
    """

    kind = "surface"

    x: Sequence[float] = ()
    y: Sequence[float] = ()
    z: Sequence[Sequence[Value]] = ()
    color: Sequence[Sequence[Value]] = ()
    floor: Sequence[Sequence[Value]] = ()
    marks: Sequence[Mark] = _several(Mark)
    paths: Sequence[Points] = _several(Points)
    top: float | None = None
    z_label: str = ""
    color_label: str = ""
    floor_label: str = ""

    def _check(self) -> None:
        for name in ("z", "color", "floor"):
            if name == "z" or getattr(self, name):
                _fits(self, name, getattr(self, name), least=2)
        if not finite(self.z):
            raise InputError(
                "z of a surface must hold a finite number, got none. Leave the chart out."
            )
        if any(mark.x is None or mark.y is None for mark in self.marks):
            raise InputError(
                "A mark of a surface must have x and y, got one without. Say where it is."
            )
        if any(len(row.values) != len(row.x) for row in self.paths):
            raise InputError(
                "A path on a surface must have one value per point, its height, got fewer. Pass "
                "values."
            )

    def told(self) -> str:
        """Tell the range of every map and the marked places."""
        maps = (("z", "height"), ("color", "color"), ("floor", "color of the floor"))
        parts = [
            " ".join(filter(None, [what, getattr(self, f"{key}_label"), range_of(found)]))
            for key, what in maps
            if (found := finite(getattr(self, key)))
        ]
        over = f"Surface over {self.x_label or 'x'} and {self.y_label or 'y'}: {'; '.join(parts)}."
        heights = [f"height {short(self.height_at(mark))}" for mark in self.marks]
        lines = f" Paths: {grouped(self.paths)}." if self.paths else ""
        return over + marked(self.marks, heights) + lines

    def height_at(self, mark: Mark) -> float | None:
        """Return the height at the place of the grid that is nearest to a mark; None in a hole."""
        x, y = mark.spot
        found = self.z[_nearest(self.y, y)][_nearest(self.x, x)]
        return found if known(found) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gallery(Chart):
    """Samples to look at: images with captions, or a table of facts where there are no images.

    Args:
        samples: What to show, in order.

    >>> print(Gallery(title="Hardest", samples=[Sample(facts={"label": "3", "loss": "2.1"})]))
    Hardest
      label 3, loss 2.1
    """

    kind = "gallery"

    samples: Sequence[Sample] = _several(Sample)

    def told(self) -> str:
        """Say how many samples there are."""
        count = len(self.samples)
        noun = "image" if any(sample.image for sample in self.samples) else "sample"
        return f"Gallery of {count:,} {noun}{'' if count == 1 else 's'}."


def _is_cell(cell: Sequence[int], rows: int, columns: int) -> bool:
    return len(cell) == 2 and 0 <= cell[0] < rows and 0 <= cell[1] < columns


def _edges(values: Tensor, bins: int, clip_low: bool) -> Tensor:
    import torch

    ordered = values.sort().values
    last = len(ordered) - 1
    low = float(ordered[int((1 - TAIL) * last)]) if clip_low else float(ordered[0])
    high = float(ordered[int(TAIL * last)])
    if high <= low:
        low, high = low - 0.5, low + 0.5
    return torch.linspace(low, high, bins + 1, dtype=torch.float64)


def _counts(values: Tensor, edges: Tensor) -> list[int]:
    import torch

    inside = values.clamp(float(edges[0]), float(edges[-1]))
    places = torch.bucketize(inside, edges[1:-1].contiguous(), right=True)
    found: list[int] = torch.bincount(places, minlength=len(edges) - 1).tolist()
    return found


def _nearest(axis: Sequence[float], value: float) -> int:
    right = min(max(bisect.bisect_left(axis, value), 1), len(axis) - 1)
    return right if axis[right] - value < value - axis[right - 1] else right - 1


def _fits(chart: Heatmap | Surface, name: str, rows: Sequence[Sequence[Any]], least: int) -> None:
    wanted, widths = (len(chart.y), len(chart.x)), {len(row) for row in rows}
    if min(wanted) < least or (len(rows), widths) != (wanted[0], {wanted[1]}):
        raise InputError(
            f"{name} of a {chart.kind} must hold one row per y and one entry per x, at least "
            f"{least}, got {len(rows)} rows for {wanted[0]} and widths {sorted(widths)} for "
            f"{wanted[1]}. Check the shape of the map."
        )
