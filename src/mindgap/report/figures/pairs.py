"""Points of more than two coordinates: one plane per pair of them."""

import itertools
from collections.abc import Sequence
from typing import Any

from mindgap.core import Scatter
from mindgap.core.chart.numbers import finite
from mindgap.report.figures.maps import point_traces
from mindgap.report.style import GRAY, LINE, Figure, axis_title, clean, figure

SPACE = 0.02  # between two planes, as a share of the whole
EDGE = 0.04  # around the points of a plane, as a share of their range
PLANE = 150  # pixels
BAR = {"len": 0.6, "y": 0.7}  # of the scale of colors, in the empty corner


def pairs_figure(chart: Scatter) -> Figure:
    """Draw every pair of coordinates; planes of one column share their first axis."""
    count = len(chart.labels)
    pairs = [(row, column) for row in range(1, count) for column in range(row)]
    traces: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for panel, (row, column) in enumerate(pairs):
        mark = str(panel + 1) if panel else ""
        axes |= _axes(chart, row, column, mark)
        traces += _panel(chart, row, column, mark)
    made = figure(
        traces,
        height=PLANE + PLANE * (count - 1),
        x={},
        y={},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )
    made["layout"] |= axes
    return made


def _panel(chart: Scatter, row: int, column: int, mark: str) -> list[dict[str, Any]]:
    """Return the points of one plane; legend and scale of colors belong to the first."""
    made = point_traces(chart.points, "" if mark else chart.value_label, BAR)
    places = {"xaxis": f"x{mark}", "yaxis": f"y{mark}", "showlegend": not mark}
    return [
        trace
        | {"x": list(points.coordinates[column]), "y": list(points.coordinates[row])}
        | {"legendgroup": f"group {k}", **places}
        for k, (points, trace) in enumerate(zip(chart.points, made, strict=True))
    ]


def _axes(chart: Scatter, row: int, column: int, mark: str) -> dict[str, Any]:
    """Return both axes of a plane; only those at the left and at the bottom are labeled."""
    axis = {
        "gridcolor": LINE,
        "linecolor": GRAY,
        "zeroline": False,
        "ticks": "",
        "nticks": 4,
        "automargin": True,
    }
    size = 1 / (len(chart.labels) - 1)
    left, top = column * size, 1 - (row - 1) * size
    across = {"domain": [left, left + size - SPACE], "anchor": f"y{mark}"}
    upward = {"domain": [top - size + SPACE, top], "anchor": f"x{mark}"}
    x = _titled(chart, column, shown=row == len(chart.labels) - 1)
    y = _titled(chart, row, shown=column == 0)
    return {f"xaxis{mark}": axis | across | x, f"yaxis{mark}": axis | upward | y}


def _titled(chart: Scatter, place: int, *, shown: bool) -> dict[str, Any]:
    title = {"title": axis_title(clean(chart.labels[place], 24))} if shown else {}
    return {"range": _range(chart, place), "showticklabels": shown, **title}


def _range(chart: Scatter, place: int) -> Sequence[float]:
    """Span the points of all groups, with some room around them."""
    rows = (points.coordinates[place] for points in chart.points)
    found = finite([list(itertools.chain.from_iterable(rows))])
    low, high = min(found, default=0.0), max(found, default=1.0)
    room = EDGE * (high - low) or 0.5
    return [low - room, high + room]
