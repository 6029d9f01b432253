"""Charts as a few lines of text, for a terminal."""

import functools
from collections.abc import Sequence
from typing import Any

from mindgap.core.chart.base import Chart, grouped
from mindgap.core.chart.kinds import Bar, Gallery, Heatmap, Histogram, Line, Scatter
from mindgap.core.chart.numbers import finite, known, short, spread
from mindgap.core.chart.parts import Points, Series

STEPS = "▁▂▃▄▅▆▇█"
SHADES = "░▒▓█"
WIDTH = 20  # characters of the longest bar
MOST_COLUMNS, MOST_ROWS = 60, 12


def text(chart: Chart) -> str:
    """Return the chart as a heading and a few indented lines."""
    head = chart.title or chart.told().partition(":")[0]
    return "\n".join([head, *(f"  {line}" for line in lines(chart))])


@functools.singledispatch
def lines(chart: Chart) -> list[str]:
    """Return what the chart shows; in words unless its kind has a form of its own."""
    return [chart.told()]


@lines.register
def _(chart: Line) -> list[str]:
    rows = [(row.name, _curve(row, chart.percent)) for row in chart.series]
    rows += [(row.name, _curve(row, percent=False)) for row in chart.right]
    rows += [(row.name, f"{len(row.x):,} ticks {_span(row.x)}") for row in chart.ticks]
    return _named(rows)


def _curve(row: Series, percent: bool) -> str:
    found = finite([row.y])
    if not found:
        return "no values"
    ends = f"{short(found[0], percent)} → {short(found[-1], percent)}"
    low, high = short(min(found), percent), short(max(found), percent)
    return f"{sparkline(row.y)}  {ends} ({low} to {high})"


@lines.register
def _(chart: Bar) -> list[str]:
    longest = max(map(abs, finite([row.y for row in chart.series])), default=1.0)
    rows = []
    for row in chart.series:
        head = f"{row.name}: " if len(chart.series) > 1 else ""
        for name, value in zip(row.x, row.y, strict=True):
            size = abs(value) if value is not None and known(value) else 0.0
            filled = round(WIDTH * size / (longest or 1.0))
            bar = ("█" * filled).ljust(WIDTH)
            rows.append((f"{head}{name}", f"{bar}  {short(value, chart.percent)}"))
    more = [f"… {len(rows) - MOST_ROWS} more"] if len(rows) > MOST_ROWS else []
    return [*_named(rows[:MOST_ROWS]), *more]


@lines.register
def _(chart: Scatter) -> list[str]:
    return _named(
        [(row.name or "points", f"{len(row.x):,}, {_spans(chart, row)}") for row in chart.points]
    )


def _spans(chart: Scatter, row: Points) -> str:
    names = chart.labels if row.more else ("x", "y")
    pairs = zip(names, row.coordinates, strict=True)
    return ", ".join(f"{name} {_span(found)}" for name, found in pairs)


@lines.register
def _(chart: Histogram) -> list[str]:
    ends = f"from {short(chart.edges[0])} to {short(chart.edges[-1])}"
    rows = [
        (name, f"{sparkline(counts, low=0)}  {sum(counts):,} in {len(counts)} bins {ends}")
        for name, counts in chart.counts.items()
    ]
    return _named(rows)


@lines.register
def _(chart: Heatmap) -> list[str]:
    found = finite(chart.z)
    if not found:
        return [chart.told()]
    low, high = min(found), max(found)
    named = bool(chart.y) and isinstance(chart.y[0], str)
    # The rows of a matrix are read from the top, those of a plane rise from the bottom.
    order = spread(len(chart.y), MOST_ROWS)
    order = order if named else order[::-1]
    columns = spread(len(chart.x), MOST_COLUMNS)
    rows = [
        (short(chart.y[r]), "".join(_shade(chart.z[r][c], low, high) for c in columns))
        for r in order
    ]
    points = [grouped(chart.points)] if chart.points else []
    return [*_named(rows), f"{chart.z_label} {_span(found)}".strip(), *points]


@lines.register
def _(chart: Gallery) -> list[str]:
    rows = [
        ", ".join(
            [*filter(None, [one.flag, one.caption]), *(f"{k} {v}" for k, v in one.facts.items())]
        )
        for one in chart.samples[:MOST_ROWS]
    ]
    left = len(chart.samples) - len(rows)
    return [*rows, *([f"… {left} more"] if left else [])]


def sparkline(values: Sequence[Any], low: float | None = None) -> str:
    """Values as a line of blocks, from ``low`` or the least value; gaps are spaces.

    >>> sparkline([0, 1, None, 3])
    '▁▃ █'
    """
    shown = [values[k] for k in spread(len(values), MOST_COLUMNS)]
    found = finite([shown])
    least = min(found, default=0.0) if low is None else low
    high = max(found, default=0.0)
    return "".join(_step(value, least, high, STEPS) if known(value) else " " for value in shown)


def _shade(value: Any, low: float, high: float) -> str:
    return _step(value, low, high, SHADES) if known(value) else "·"


def _step(value: float, low: float, high: float, steps: str) -> str:
    return steps[round((len(steps) - 1) * (value - low) / ((high - low) or 1.0))]


def _span(values: Sequence[Any]) -> str:
    found = finite([values])
    return f"from {short(min(found))} to {short(max(found))}" if found else "unknown"


def _named(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name.ljust(width)}  {body}" if width else body for name, body in rows]
