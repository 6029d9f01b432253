"""The numbers of a chart as a table: what a screen reader, and a browser without scripts, show."""

import functools
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from mindgap.core import Bar, Chart, Heatmap, Histogram, Line, Scatter, Series, Surface
from mindgap.core.chart.numbers import known, number, percent, spread

MOST_ROWS, MOST_COLUMNS = 40, 13
Numbers = tuple[tuple[str, ...], tuple[tuple[str, ...], ...], str]


def numbers_of(chart: Chart) -> Numbers:
    """Return the head, the rows, and what was left out, in words.

    Args:
        chart: What is drawn.

    >>> numbers_of(Bar.of({"cat": 0.1, "dog": 0.2}, title="Errors", percent=True))[1]
    (('cat', '10\\xa0%'), ('dog', '20\\xa0%'))
    """
    head, rows = _table(chart)
    kept = spread(len(rows), MOST_ROWS)
    left = f"{len(kept)} of {len(rows):,} rows are shown." if len(kept) < len(rows) else ""
    return tuple(head), tuple(tuple(map(_word, rows[k])) for k in kept), left


@functools.singledispatch
def _table(chart: Chart) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """Return the head and the cells; no rows for what is read as it is, such as samples."""
    del chart
    return (), ()


@_table.register(Line)
@_table.register(Bar)
def _(chart: Line | Bar) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    rows = [*chart.series, *(chart.right if isinstance(chart, Line) else ())]
    share = [chart.percent] * len(chart.series) + [False] * (len(rows) - len(chart.series))
    places = list(dict.fromkeys(place for row in rows for place in row.x))
    cells = [_by_place(row, as_share) for row, as_share in zip(rows, share, strict=True)]
    head = [chart.x_label or "", *(row.name or chart.y_label or "value" for row in rows)]
    return head, [[place, *(found.get(place, "") for found in cells)] for place in places]


def _by_place(row: Series, share: bool) -> dict[Any, str]:
    ends = zip_longest(row.x, row.y, row.low, row.high)
    return {x: _value(y, share) + _interval(low, high, share) for x, y, low, high in ends}


def _interval(low: Any, high: Any, share: bool) -> str:
    if not (known(low) and known(high)):
        return ""
    return f" ({_value(low, share)} to {_value(high, share)})"


@_table.register(Histogram)
def _(chart: Histogram) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    head = [f"{chart.x_label} from", "to", *(name or "count" for name in chart.counts)]
    ends = zip(chart.edges[:-1], chart.edges[1:], strict=True)
    counts = zip(*chart.counts.values(), strict=True)
    pairs = zip(ends, counts, strict=True)
    return head, [[low, high, *row] for (low, high), row in pairs if any(row)]


@_table.register(Heatmap)
@_table.register(Surface)
def _(chart: Heatmap | Surface) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    columns = spread(len(chart.x), MOST_COLUMNS - 1) if chart.z else []
    rows = spread(len(chart.y), MOST_COLUMNS - 1) if chart.z else []
    corner = " \\ ".join(filter(None, [chart.y_label, chart.x_label]))
    head = [corner, *(_word(chart.x[k]) for k in columns)]
    return head, [[chart.y[r], *(chart.z[r][c] for c in columns)] for r in rows]


@_table.register(Scatter)
def _(chart: Scatter) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    valued = any(row.values for row in chart.points)
    head = ["group", *chart.labels, *([chart.value_label or "value"] if valued else [])]
    return head, [
        [row.name, *place]
        for row in chart.points
        for place in zip_longest(*row.coordinates, *([row.values] if valued else []))
    ]


def _value(value: Any, share: bool) -> str:
    return percent(value) if share and known(value) else _word(value)


def _word(value: Any) -> str:
    return number(value) if value is None or isinstance(value, int | float) else str(value)
