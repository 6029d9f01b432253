"""The renderer: every chart becomes a Plotly figure or a gallery, in one style."""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from mindgap.core.chart import (
    Bar,
    Chart,
    Contour,
    Gallery,
    Heatmap,
    Histogram,
    Line,
    Mark,
    Points,
    Scatter,
    Series,
    Surface,
)
from mindgap.core.chart.numbers import finite, known
from mindgap.core.chart.parts import Scale
from mindgap.report.style import (
    AMBER,
    BARE,
    CYCLE,
    GREEN,
    INK,
    MUTED,
    SKY,
    TEST,
    TRAIN,
    Drawn,
    Figure,
    axis_title,
    band,
    clean,
    figure,
    line,
    named,
    upright,
    whiskers,
)
from mindgap.report.surface import surface_figure
from mindgap.report.surface_still import surface_still

# The same thing has the same color on every chart.
COLORS = {
    "train": TRAIN,
    "training data": TRAIN,
    "test": TEST,
    "test data": TEST,
    "suspects": TEST,
    "validation": GREEN,
    "gap": AMBER,
    "complexity term": SKY,
}
DASHES = ("solid", "dash", "dot")
SYMBOLS = {"cross": "x-thin", "ring": "circle-open"}  # Plotly's names where they differ
HEAT = [[0, "#fbfbfc"], [0.5, "#d8cfe8"], [1, "#7a5ba8"]]  # violet: no color of the first groups
COUNTS = [[0, "#fdeee3"], [1, TEST]]
GRAYS = ("#9aa3b0", "#d5dae1")
HATCH = {"size": 7, "solidity": 0.3}
SMALLEST, LARGEST = 5, 11  # pixels across a point
MOST_LETTERS = 110  # of all names together, that fit under bars side by side
MOST_IN_CELLS = 12  # names on an axis at which a cell has room for its number
LONGEST_NAME = 14  # characters under a bar
INTERVALS = "Bands and whiskers are intervals."
TURN = (
    "Drag or use the arrow keys to turn it, the wheel or + and − to zoom, 0 to go back. "
    "Point at a place to read its values."
)


def draw(chart: Chart, key: str) -> Drawn:
    """Return a chart as a page shows it.

    Args:
        chart: What to show.
        key: A name that is unique on the page.

    >>> from mindgap.core import Series
    >>> drawn = draw(Line(title="Loss", series=[Series(name="test", x=[1, 2], y=[0.9, 0.4])]), "a")
    >>> drawn.title, drawn.alt
    ('Loss', 'Loss. Line chart: test from 0.4 to 0.9.')
    """
    return Drawn(
        key=key,
        title=chart.title,
        caption=chart.caption or _caption(chart),
        alt=chart.description,
        figure=None if isinstance(chart, Gallery) else figure_of(chart),
        samples=tuple(chart.samples) if isinstance(chart, Gallery) else (),
        wide=chart.wide,
        still=surface_still(chart) if isinstance(chart, Surface) else None,
    )


def draw_all(charts: Iterable[Chart], prefix: str) -> list[Drawn]:
    """Charts as a page shows them, numbered after a prefix."""
    return [draw(chart, f"{prefix}-{place}") for place, chart in enumerate(charts)]


def notebook(chart: Chart) -> str:
    """Return a chart for a notebook's cell: a page of its own inside a frame."""
    from mindgap.report.html import framed, render

    drawn = draw(chart, "chart")
    return framed(render("chart.html", chart=drawn), height=(drawn.height or 400) + 130)


def _caption(chart: Chart) -> str:
    if isinstance(chart, Surface):
        return TURN
    rows = chart.series if isinstance(chart, Line | Bar) else ()
    return INTERVALS if any(row.low for row in rows) else ""


@functools.singledispatch
def figure_of(chart: Chart) -> Figure:
    """Return the chart as data and layout for Plotly."""
    raise TypeError(f"no renderer for {type(chart).__name__}")


@figure_of.register
def _line(chart: Line) -> Figure:
    traces = [trace for k, row in enumerate(chart.series) for trace in _curve(chart, row, k)]
    return figure(
        traces,
        height=380 if chart.wide else 300,
        x=_axis(chart.x_label, chart.x_scale),
        y=_axis(chart.y_label, chart.y_scale, chart.percent)
        | ({"rangemode": "tozero"} if chart.from_zero else {}),
        shapes=_marks(chart.marks),
        showlegend=len(traces) > 1,
    )


def _curve(chart: Line, row: Series, place: int) -> list[dict[str, Any]]:
    name, color = clean(row.name), _color(row.name, place)
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


@figure_of.register
def _bar(chart: Bar) -> Figure:
    lying = chart.horizontal
    if lying is None:
        lying = sum(map(len, chart.names)) > MOST_LETTERS
    traces = [_bars(chart, row, k, lying) for k, row in enumerate(chart.series)]
    longest = 28 if lying else max(LONGEST_NAME, MOST_LETTERS // max(len(chart.names), 1))
    names = {
        **named(chart.names, longest),
        "title": axis_title(chart.x_label),
    }
    values = _axis(chart.y_label, chart.y_scale, chart.percent)
    values |= {"range": [0, chart.top]} if chart.top is not None else {}
    ends = [_note(chart, place, lying) for place in range(len(chart.notes))]
    shapes = _marks([Mark(name=m.name, x=m.y, color=m.color) if lying else m for m in chart.marks])
    several = len(chart.series) > 1
    return figure(
        traces,
        height=_lying_height(chart) if lying else (380 if several else 320),
        x=values if lying else names,
        y={**names, "autorange": "reversed", "tickfont": {"size": 12}} if lying else values,
        barmode="stack" if chart.stacked else "group",
        showlegend=several,
        shapes=shapes,
        annotations=ends,
        **({} if several else {"margin": BARE}),
    )


def _lying_height(chart: Bar) -> int:
    """Few bars are thick; many are thin, so that they fit on a screen."""
    groups = 1 if chart.stacked else len(chart.series)
    thick = 26 if len(chart.names) * groups <= 12 else 16
    return 90 + len(chart.names) * (8 + thick * groups)


def _bars(chart: Bar, row: Series, place: int, lying: bool) -> dict[str, Any]:
    along, across = ("y", "x") if lying else ("x", "y")
    digits = ".2~%" if chart.percent else ".4~g"
    head = f"{clean(row.name)}, " if row.name else ""
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h" if lying else "v",
        "name": clean(row.name),
        along: _places(chart, row),
        across: list(row.y),
        "text": [clean(str(name)) for name in row.x],
        "textposition": "none",
        "marker": _bar_marker(chart, row, place),
        "hovertemplate": f"{head}%{{text}}: %{{{across}:{digits}}}<extra></extra>",
    }
    if row.low:
        above, below = _arms(row)
        trace[f"error_{across}"] = whiskers(above, below)
    return trace | ({"width": 0.6} if chart.stacked or len(chart.series) == 1 else {})


def _places(chart: Bar, row: Series) -> list[int]:
    """Number the bars of a series; as categories, equal names would fall together."""
    if len({tuple(other.x) for other in chart.series}) == 1:
        return list(range(len(row.x)))
    return [chart.names.index(str(name)) for name in row.x]


def _bar_marker(chart: Bar, row: Series, place: int) -> dict[str, Any]:
    plain = _color(row.name, place)
    alone = len(chart.series) == 1
    colors = [COLORS.get(str(name).lower(), plain) if alone else plain for name in row.x]
    if not chart.muted:
        return {"color": colors}
    quiet = [str(name) in chart.muted for name in row.x]
    gray = GRAYS[place % len(GRAYS)]
    pairs = zip(colors, quiet, strict=True)
    return {
        "color": [gray if muted else color for color, muted in pairs],
        "pattern": {"shape": ["/" if muted else "" for muted in quiet], **HATCH},
    }


def _arms(row: Series) -> tuple[list[float | None], list[float | None]]:
    """Say how far the whiskers reach above and below; none where an end is unknown or infinite."""
    ends = [
        (max(high - y, 0.0), max(y - low, 0.0))
        if known(y) and known(low) and known(high)
        else (None, None)
        for y, low, high in zip(row.y, row.low, row.high, strict=True)
    ]
    return [above for above, _ in ends], [below for _, below in ends]


def _note(chart: Bar, place: int, lying: bool) -> dict[str, Any]:
    """Return the text at the end of a bar, or inside the chart where the bar is cut off."""
    found = finite([[row.y[place] for row in chart.series if place < len(row.y)]])
    end = sum(found) if chart.stacked else max(found, default=0.0)
    text = {"text": clean(chart.notes[place]), "showarrow": False, "font": {"size": 12}}
    if not lying:
        return {**text, "x": place, "y": end, "yanchor": "bottom"}
    if chart.top is not None and end > 0.65 * chart.top:
        ground = {"bgcolor": "rgba(255,255,255,0.85)"}
        return {**text, "y": place, "x": chart.top, "xanchor": "right", "xshift": -6, **ground}
    return {**text, "y": place, "x": end, "xanchor": "left", "xshift": 6}


@figure_of.register
def _scatter(chart: Scatter) -> Figure:
    return figure(
        [_points(row, k, _heaviest(chart.points)) for k, row in enumerate(chart.points)],
        height=420,
        x=_axis(chart.x_label, chart.x_scale),
        y=_axis(chart.y_label, chart.y_scale),
        shapes=_marks(chart.marks),
        showlegend=len(chart.points) > 1,
    )


def _heaviest(groups: Sequence[Points]) -> float:
    return max(finite([row.weights for row in groups]), default=1.0) or 1.0


def _points(row: Points, place: int, heaviest: float) -> dict[str, Any]:
    color: dict[str, Any] = {"color": _color(row.name, place)}
    if row.values:
        color = {"color": list(row.values), "colorscale": "Viridis"}
    weights = row.weights or (0.0,) * len(row.x)
    sizes = [
        round(SMALLEST + (LARGEST - SMALLEST) * max(weight or 0.0, 0.0) / heaviest, 1)
        for weight in weights
    ]
    weighed = "<br>weight %{customdata:.3~g}" if row.weights else ""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": clean(row.name) or "samples",
        "x": list(row.x),
        "y": list(row.y),
        "marker": {
            **color,
            "symbol": SYMBOLS.get(row.symbol, row.symbol),
            "size": sizes,
            "opacity": 0.85,
            "line": {"color": "#ffffff", "width": 0.7},
        },
        "customdata": list(weights),
        "hovertemplate": f"%{{x:.4~g}}, %{{y:.4~g}}{weighed}",
    }


@figure_of.register
def _histogram(chart: Histogram) -> Figure:
    several = len(chart.counts) > 1
    ends = [chart.edges[0], chart.edges[-1]]
    y = _axis(chart.y_label, chart.y_scale, percent=chart.shares)
    if chart.y_scale == "log":
        largest = max([1, *(count for counts in chart.counts.values() for count in counts)])
        y |= {"dtick": 1, "range": [math.log10(0.7), math.log10(1.4 * largest)]}
    else:
        y |= {"rangemode": "tozero"}
    drawn = _outline if chart.shares else _filled
    return figure(
        [drawn(chart, name, k) for k, name in enumerate(chart.counts)],
        height=300,
        x={**_axis(chart.x_label), "range": ends, "zeroline": True, "zerolinewidth": 2},
        y=y,
        barmode="overlay",
        bargap=0,
        shapes=_marks(chart.marks),
        showlegend=several,
        **({} if several else {"margin": BARE}),
    )


def _middles(chart: Histogram) -> list[float]:
    return [(a + b) / 2 for a, b in zip(chart.edges[:-1], chart.edges[1:], strict=True)]


def _outline(chart: Histogram, name: str, place: int) -> dict[str, Any]:
    """Shares of a group as steps, with the standard error of every share."""
    counts, color = chart.counts[name], _color(name, place)
    total = sum(counts) or 1
    shares = [count / total for count in counts]
    errors = [math.sqrt(share * (1 - share) / total) for share in shares]
    trace = line(name, _middles(chart), shares, color)
    trace["line"]["shape"] = "hvh"
    arms = {"type": "data", "array": errors, "color": color, "thickness": 1, "width": 0}
    hover = f"{clean(name)}: %{{y:.1%}} near %{{x:.3~g}}<extra></extra>"
    return trace | {"error_y": arms, "hovertemplate": hover}


def _filled(chart: Histogram, name: str, place: int) -> dict[str, Any]:
    """Draw counts as bars without gaps; empty bins are left out, for a log axis has no zero."""
    return {
        "type": "bar",
        "name": clean(name),
        "x": _middles(chart),
        "y": [count or None for count in chart.counts[name]],
        "width": [b - a for a, b in zip(chart.edges[:-1], chart.edges[1:], strict=True)],
        "marker": {"color": _color(name, place)},
        "hovertemplate": f"{clean(name)}: %{{y}} near %{{x:.3~g}}<extra></extra>",
    }


@figure_of.register
def _heatmap(chart: Heatmap) -> Figure:
    if chart.y and isinstance(chart.y[0], str):
        return _matrix(chart)
    traces = [_diverging(chart) if chart.diverging else _heat(chart)] if chart.z else []
    traces += [_contour(chart, row, k) for k, row in enumerate(chart.contours)]
    heaviest = _heaviest(chart.points)
    traces += [_points(row, k, heaviest) for k, row in enumerate(chart.points)]
    x, y = (_axis(label) | {"showgrid": False, "zeroline": False} for label in _labels(chart))
    if not chart.diverging:
        x["range"], y["range"] = [chart.x[0], chart.x[-1]], [chart.y[0], chart.y[-1]]
    several = bool(chart.points or chart.contours)
    return figure(traces, height=460 if several else 440, x=x, y=y, showlegend=several)


def _labels(chart: Chart) -> tuple[str, str]:
    return chart.x_label, chart.y_label


def _matrix(chart: Heatmap) -> Figure:
    """Draw named rows, the first on top; zeros are left blank, or they would drown the rest."""
    places = [list(range(len(axis))) for axis in (chart.x, chart.y)]
    columns, rows = ([clean(str(name)) for name in axis] for axis in (chart.x, chart.y))
    roomy = max(len(columns), len(rows)) <= MOST_IN_CELLS
    trace = {
        "type": "heatmap",
        "x": places[0],
        "y": places[1],
        "z": [[value or None for value in row] for row in chart.z],
        **({"zmid": 0} if chart.diverging else {"zmin": 0, "zmax": max([*finite(chart.z), 1])}),
        "colorscale": "RdBu" if chart.diverging else COUNTS,
        "xgap": 2,
        "ygap": 2,
        "showscale": False,
        "texttemplate": "%{z:.3~g}" if roomy else "",
        "customdata": [[f"{row}, {column}" for column in columns] for row in rows],
        "hovertemplate": "%{customdata}: %{z:.4~g}<extra></extra>",
    }
    x, y = (
        {**named([str(name) for name in axis], LONGEST_NAME), "title": axis_title(label)}
        for axis, label in zip((chart.x, chart.y), _labels(chart), strict=True)
    )
    x["range"], y["range"] = [-0.5, len(columns) - 0.5], [len(rows) - 0.5, -0.5]
    return figure([trace], height=320, x=x, y=y, margin=BARE)


def _diverging(chart: Heatmap) -> dict[str, Any]:
    """Return numbers around zero: blue is lower, red is higher."""
    return {
        "type": "heatmap",
        "x": list(chart.x),
        "y": list(chart.y),
        "z": _lists(chart.z),
        "colorscale": "RdBu",
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
        "colorbar": {"thickness": 12, "title": _bar_title(chart.z_label)},
        "hoverongaps": False,
        "hovertemplate": f"{clean(chart.z_label)} %{{z:.3~g}}<extra></extra>",
    }


def _bar_title(text: str) -> dict[str, Any]:
    return {"text": clean(text), "side": "right", "font": {"size": 12}}


def _contour(chart: Heatmap, row: Contour, place: int) -> dict[str, Any]:
    """Where the map is zero, as one line; equal names are one entry of the legend."""
    names = list(dict.fromkeys(other.name for other in chart.contours))
    free = CYCLE[len(chart.points) :] or CYCLE  # colors that the points leave
    color = INK if len(names) == 1 else free[names.index(row.name) % len(free)]
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


@figure_of.register
def _surface(chart: Surface) -> Figure:
    return surface_figure(chart)


def _lists(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(row) for row in rows]


def _axis(label: str, scale: Scale = "", percent: bool = False) -> dict[str, Any]:
    """Return an axis; powers of ten are written as such, not as µ or n."""
    axis: dict[str, Any] = {"title": axis_title(clean(label))}
    if scale == "log":
        axis |= {"type": "log", "exponentformat": "power"}
    elif scale:
        axis |= {"type": scale}
    return axis | ({"tickformat": ".1~%", "rangemode": "tozero"} if percent else {})


def _marks(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """Lines across the chart with their names."""
    return [_across(mark) for mark in marks]


def _across(mark: Mark) -> dict[str, Any]:
    color = mark.color or MUTED
    text = {"text": clean(mark.name), "font": {"size": 11, "color": color}, "textangle": 0}
    if mark.x is not None:
        place = {"textposition": "end", "xanchor": "left", "yanchor": "top"}
        return upright(mark.x, dash="dot", color=color, label={**text, **place})
    ends = {"y0": mark.y, "y1": mark.y, "xref": "paper", "x0": 0, "x1": 1}
    place = {"textposition": "start", "yanchor": "bottom"}
    style = {"color": color, "width": 1.3, "dash": "dot"}
    return {"type": "line", **ends, "line": style, "label": {**text, **place}}


def _color(name: str, place: int) -> str:
    return COLORS.get(name.lower(), CYCLE[place % len(CYCLE)])
