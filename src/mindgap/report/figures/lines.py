"""Curves with bands, a second axis at the right, and strips of ticks below."""

from typing import Any

from mindgap.core import Line, Series, Ticks
from mindgap.report.style import (
    CYCLE,
    INK,
    VIOLET,
    Figure,
    axis,
    axis_title,
    band,
    clean,
    color_of,
    colors_of,
    figure,
    line,
    lines_across,
)

DASHES = ("solid", "dash", "dot")
STRIP = 0.055  # height of a strip of ticks, as a share of the figure
GAP = 0.05  # between the strips and the curves
BARE = {"showgrid": False, "zeroline": False}


def line_figure(chart: Line) -> Figure:
    """Draw curves, each with the band of its intervals."""
    curves = [trace for k, row in enumerate(chart.series) for trace in _curve(chart, row, k)]
    curves += [_right(row, k) for k, row in enumerate(chart.right)]
    x = axis(chart.x_label, chart.x_scale)
    y = axis(chart.y_label, chart.y_scale, chart.percent)
    y |= {"rangemode": "tozero"} if chart.from_zero else {}
    more: dict[str, Any] = {}
    if chart.right:
        more["yaxis2"] = _right_axis(chart)
    if chart.ticks:
        foot = STRIP * len(chart.ticks)
        x["anchor"], y["domain"] = "y3", [foot + GAP, 1]
        more["yaxis3"] = _strips(chart, foot)
    return figure(
        [*curves, *(_ticks(row, k) for k, row in enumerate(chart.ticks))],
        height=(380 if chart.wide else 300) + 45 * len(chart.ticks),
        x=x,
        y=y,
        shapes=lines_across(chart.marks),
        showlegend=len(curves) > 1,
        **more,
    )


def _curve(chart: Line, row: Series, place: int) -> list[dict[str, Any]]:
    name, color = clean(row.name), _color(chart, place)
    digits = ".2%" if chart.percent else ".4~g"
    curve = line(name, row.x, row.y, color, DASHES[place // len(CYCLE) % 3]) | {
        "mode": row.mode if len(row.x) > 1 else "markers",
        "legendgroup": name,
        "hovertemplate": f"{name}<br>%{{x}}: %{{y:{digits}}}<extra></extra>",
    }
    if not row.low:
        return [curve]
    edge = [*row.high, *reversed(row.low)]
    filled = band([*row.x, *reversed(row.x)], edge, color, name)
    return [{**filled, "legendgroup": name, "showlegend": False}, curve]


def _color(chart: Line, place: int) -> str:
    """Leave the colors of the ticks to them: next to ticks the first curve is black."""
    if not chart.ticks:
        return colors_of([other.name for other in chart.series])[place]
    return (INK, *CYCLE[2:])[place % (len(CYCLE) - 1)]


def _right(row: Series, place: int) -> dict[str, Any]:
    name = clean(row.name)
    dash = DASHES[-1 - place % len(DASHES)]
    hover = f"{name}: %{{y:.3~g}}<extra></extra>"
    curve = line(name, row.x, row.y, VIOLET, dash)
    return curve | {"mode": "lines", "yaxis": "y2", "hovertemplate": hover}


def _right_axis(chart: Line) -> dict[str, Any]:
    return {
        "title": axis_title(clean(chart.right_label)),
        "overlaying": "y",
        "side": "right",
        "rangemode": "tozero",
        "tickmode": "auto",  # otherwise at odd numbers, level with those of the left axis
        "tickfont": {"color": VIOLET},
        "automargin": True,
        **BARE,
    }


def _strips(chart: Line, foot: float) -> dict[str, Any]:
    """Return the axis below the curves that names every strip, the first on top."""
    rows = len(chart.ticks)
    return {
        "domain": [0, foot],
        "tickvals": list(range(rows)),
        "ticktext": [clean(row.name, 24) for row in chart.ticks],
        "range": [rows - 0.4, -0.6],
        "ticks": "",
        "automargin": True,
        "fixedrange": True,
        **BARE,
    }


def _ticks(row: Ticks, place: int) -> dict[str, Any]:
    name, color = clean(row.name), color_of(row.name, place)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": False,
        "x": list(row.x),
        "y": [place] * len(row.x),
        "yaxis": "y3",
        "marker": {"symbol": "line-ns", "size": 13, "line": {"color": color, "width": 1.5}},
        "hovertemplate": f"{name}: %{{x:.5~g}}<extra></extra>",
    }
