"""Maps with points and contour lines, matrices, and points alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from mindgap.core import Chart, Contour, Heatmap, Points, Scatter
from mindgap.core.chart.numbers import finite
from mindgap.report import style
from mindgap.report.style import (
    Figure,
    axis,
    axis_title,
    clean,
    color_of,
    figure,
    line,
    lines_across,
    named,
)

SYMBOLS = {"cross": "x-thin", "ring": "circle-open"}  # Plotly's names where they differ
HEAT = [[0, style.NEARLY_WHITE], [0.5, style.PALE_VIOLET], [1, style.VIOLET]]
COUNTS = [[0, style.PALE_ORANGE], [1, style.TEST]]
DIVERGING = [
    [0, "#2166ac"],
    [0.25, style.PALE_BLUE],
    [0.5, style.MIDDLE],
    [0.75, style.PALE_RED],
    [1, "#b2182b"],
]
SMALLEST, LARGEST = 5, 11  # pixels across a point
FEW, FEW_SIZE = 300, 7  # so few points without weights can be drawn so large
MOST_IN_CELLS = 12  # names on an axis at which a cell has room for its number
LONGEST_NAME = 14  # characters of a name on an axis


def heatmap_figure(chart: Heatmap) -> Figure:
    """Draw a map in colors, with contour lines and points on top; named rows make a matrix."""
    if chart.y and isinstance(chart.y[0], str):
        return _matrix(chart)
    traces = [_diverging(chart) if chart.diverging else _heat(chart)] if chart.z else []
    traces += [_contour(chart, row, k) for k, row in enumerate(chart.contours)]
    # A point at the border of the map is shown whole.
    traces += [trace | {"cliponaxis": False} for trace in point_traces(chart.points)]
    x, y = (axis(label) | {"showgrid": False, "zeroline": False} for label in _labels(chart))
    if not chart.diverging:
        x["range"], y["range"] = [chart.x[0], chart.x[-1]], [chart.y[0], chart.y[-1]]
    several = bool(chart.points or chart.contours)
    return figure(traces, height=460 if several else 440, x=x, y=y, showlegend=several)


def _labels(chart: Chart) -> tuple[str, str]:
    return chart.x_label, chart.y_label


def _matrix(chart: Heatmap) -> Figure:
    """Draw named rows, the first on top; counts of zero are left blank."""
    places = [list(range(len(names))) for names in (chart.x, chart.y)]
    columns, rows = ([clean(str(name)) for name in names] for names in (chart.x, chart.y))
    roomy = max(len(columns), len(rows)) <= MOST_IN_CELLS
    trace = {
        "type": "heatmap",
        "x": places[0],
        "y": places[1],
        "z": _lists(chart.z)
        if chart.diverging
        else [[value or None for value in row] for row in chart.z],
        **(
            {"zmid": 0}
            if chart.diverging
            else {"zmin": 0, "zmax": max(finite(chart.z), default=0.0) or 1.0}
        ),
        "colorscale": DIVERGING if chart.diverging else COUNTS,
        "xgap": 2,
        "ygap": 2,
        "showscale": False,
        "texttemplate": "%{z:.3~g}" if roomy else "",
        "customdata": [[f"{row}, {column}" for column in columns] for row in rows],
        "hovertemplate": "%{customdata}: %{z:.4~g}<extra></extra>",
    }
    x, y = (
        {**named([str(name) for name in names], LONGEST_NAME), "title": axis_title(label)}
        for names, label in zip((chart.x, chart.y), _labels(chart), strict=True)
    )
    x["range"], y["range"] = [-0.5, len(columns) - 0.5], [len(rows) - 0.5, -0.5]
    return figure([trace], height=320, x=x, y=y, margin=style.BARE)


def _diverging(chart: Heatmap) -> dict[str, Any]:
    """Return numbers around zero: blue is lower, red is higher."""
    return {
        "type": "heatmap",
        "x": list(chart.x),
        "y": list(chart.y),
        "z": _lists(chart.z),
        "colorscale": DIVERGING,
        "zmid": 0,
        "colorbar": {"thickness": 12, "title": _bar_title(chart.z_label)},
    }


def _heat(chart: Heatmap) -> dict[str, Any]:
    values = finite(chart.z)
    return {
        "type": "heatmap",
        "x": list(chart.x),
        "y": list(chart.y),
        "z": _lists(chart.z),
        **({"zmin": 0} if min(values, default=0) >= 0 else {}),
        "zsmooth": "best" if len(values) == len(chart.x) * len(chart.y) else False,
        "colorscale": HEAT,
        "showscale": bool(chart.z_label),  # without a word for them, numbers would say nothing
        "colorbar": {"thickness": 12, "title": _bar_title(chart.z_label)},
        "hoverongaps": False,
        "hovertemplate": f"{clean(chart.z_label)} %{{z:.3~g}}<extra></extra>",
    }


def _bar_title(text: str) -> dict[str, Any]:
    return {"text": clean(text), "side": "right", "font": {"size": 12}}


def _contour(chart: Heatmap, row: Contour, place: int) -> dict[str, Any]:
    """Where the map is zero, as one line; equal names are one entry of the legend."""
    names = list(dict.fromkeys(other.name for other in chart.contours))
    free = style.CYCLE[len(chart.points) :] or style.CYCLE  # colors that the points leave
    color = style.INK if len(names) == 1 else free[names.index(row.name) % len(free)]
    return {
        "type": "contour",
        "x": list(chart.x),
        "y": list(chart.y),
        "z": _lists(row.z),
        "name": clean(row.name),
        "legendgroup": f"line {names.index(row.name)}",
        "showlegend": all(other.name != row.name for other in chart.contours[:place]),
        "autocontour": False,
        "contours": {"start": 0, "end": 0, "size": 1, "coloring": "none"},
        "line": {"color": color, "width": 2.4},
        "showscale": False,
        "hoverinfo": "skip",
    }


def scatter_figure(chart: Scatter) -> Figure:
    """Draw groups of points."""
    return figure(
        [*_diagonal(chart), *point_traces(chart.points, chart.value_label)],
        height=420,
        x=axis(chart.x_label, chart.x_scale),
        y=axis(chart.y_label, chart.y_scale),
        shapes=lines_across(chart.marks),
        showlegend=len(chart.points) > 1,
    )


def _diagonal(chart: Scatter) -> list[dict[str, Any]]:
    """Draw the line on which both coordinates are equal, as far as there are points on both axes."""
    across, upward = (finite([row.coordinates[axis] for row in chart.points]) for axis in (0, 1))
    if not chart.diagonal or not across or not upward:
        return []
    ends = [min(*across, *upward), max(*across, *upward)]
    drawn = line("equal", ends, ends, style.MUTED, "dot")
    return [{**drawn, "hoverinfo": "skip", "hovertemplate": None, "showlegend": False}]


def point_traces(
    groups: Sequence[Points], label: str = "", bar: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return groups of points as data for Plotly; the heaviest point of all is the largest.

    Args:
        groups: The points.
        label: What their values are; without it there is no scale of colors.
        bar: How that scale looks.
    """
    heaviest = max(finite([row.weights for row in groups]), default=0.0) or 1.0
    few = sum(len(row.x) for row in groups) <= FEW
    traces = [
        _points(row, k, heaviest, FEW_SIZE if few else SMALLEST) for k, row in enumerate(groups)
    ]
    values = finite([row.values for row in groups])
    colored = [trace["marker"] for row, trace in zip(groups, traces, strict=True) if row.values]
    for marker in colored:
        marker |= {"cmin": min([*values, 0.0]), "cmax": max([*values, 0.0])}
    if label and colored:
        shown = {"thickness": 12, "title": _bar_title(label), **(bar or {})}
        colored[0].update(showscale=True, colorbar=shown)
    return traces


def _points(row: Points, place: int, heaviest: float, size: float) -> dict[str, Any]:
    own = color_of(row.name, place)
    color: dict[str, Any] = {"color": own}
    if row.values:
        color = {"color": list(row.values), "colorscale": "Viridis"}
    sizes = [
        round(SMALLEST + (LARGEST - SMALLEST) * max(weight or 0.0, 0.0) / heaviest, 1)
        for weight in row.weights
    ]
    weighed = "<br>weight %{customdata:.3~g}" if row.weights else ""
    outline = row.symbol in SYMBOLS  # Plotly draws crosses and rings with their outline alone
    return {
        "type": "scatter",
        "mode": "markers",
        "name": clean(row.name) or "samples",
        "x": list(row.x),
        "y": list(row.y),
        "marker": {
            **color,
            "symbol": SYMBOLS.get(row.symbol, row.symbol),
            "size": sizes or size,
            "opacity": 0.85,
            "line": {"color": own, "width": 1.2}
            if outline
            else {"color": style.PAPER, "width": 0.7},
        },
        "customdata": list(row.weights),
        "hovertemplate": f"%{{x:.4~g}}, %{{y:.4~g}}{weighed}",
    }


def _lists(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(row) for row in rows]
