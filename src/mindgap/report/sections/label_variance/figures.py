"""The figures of where labels vary: the weights of all samples, and the plane.

The charts of where labels vary, with their captions.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mindgap.report import wording
from mindgap.report.sections.label_variance.summary import Plane, Variance
from mindgap.report.style import (
    BARE,
    CYCLE,
    INK,
    TEST,
    TRAIN,
    Chart,
    Figure,
    axis_title,
    clean,
    figure,
)

HEAT = [
    [0, "#fbfbfc"],
    [0.5, "#d8cfe8"],
    [1, "#7a5ba8"],
]  # violet: neither of the first two classes' colors
SMALLEST, LARGEST = 5, 11  # pixels across a sample


def weight_bars(variance: Variance) -> Figure:
    """How many samples have which weight, the suspects in front; on a log scale, for most are light."""
    width = variance.edges[1] - variance.edges[0]
    middles = [edge + width / 2 for edge in variance.edges[:-1]]
    bar = {
        "type": "bar",
        "x": middles,
        "width": [width] * len(middles),
        "hovertemplate": "%{y} near %{x:.3~g}",
    }
    traces = [
        {**bar, "name": "samples", "y": _positive(variance.counts), "marker": {"color": TRAIN}}
    ]
    if variance.suspects:
        traces.append(
            {**bar, "name": "suspects", "y": _positive(variance.marked), "marker": {"color": TEST}}
        )
    x = {"title": axis_title("weight"), "range": [variance.edges[0], variance.edges[-1]]}
    y = {
        "title": axis_title("samples (log scale)"),
        "type": "log",
        "dtick": 1,
        "range": [math.log10(0.7), math.log10(1.4 * max(variance.counts))],
    }
    several = len(traces) > 1
    more = {} if several else {"margin": BARE}
    return figure(
        traces, height=280, x=x, y=y, barmode="overlay", bargap=0, showlegend=several, **more
    )


def _positive(counts: Sequence[int]) -> list[int | None]:
    return [count or None for count in counts]


def plane_map(plane: Plane) -> Figure:
    """The local variance, the samples (larger where heavier) and the model's decision boundary."""
    contours = [
        {"name": "decision boundary", "z": [list(row) for row in margin]}
        for margin in plane.margins
    ]
    places = [[row[k] for row in plane.points] for k in (0, 1)]
    groups = plane.labels or ("",)
    points = []
    for number, name in enumerate(groups):
        chosen = [
            k for k, target in enumerate(plane.targets) if not plane.labels or target == number
        ]
        row: dict[str, Any] = {
            "name": name,
            "x": [places[0][k] for k in chosen],
            "y": [places[1][k] for k in chosen],
        }
        row["weights"] = [plane.weights[k] for k in chosen]
        points.append(row if plane.labels else {**row, "values": list(plane.targets)})
    return plane_figure(
        {
            "x": list(plane.x),
            "y": list(plane.y),
            "z": [list(row) for row in plane.variance],
            "z_label": "local variance",
            "x_label": plane.names[0],
            "y_label": plane.names[1],
            "points": points,
            "contours": contours,
        }
    )


def plane_figure(chart: Mapping[str, Any]) -> Figure:
    """A color map of numbers from zero up (if ``z``), lines where ``contours`` are zero, and ``points`` on top."""
    traces: list[dict[str, Any]] = [_heat(chart)] if chart.get("z") else []
    rows = list(chart.get("contours", ()))
    traces += [_contour(chart, row, k, rows) for k, row in enumerate(rows)]
    every = [weight for row in chart.get("points", ()) for weight in row.get("weights", ())]
    heaviest = max(every, default=1.0) or 1.0
    traces += [_points(row, k, heaviest) for k, row in enumerate(chart.get("points", ()))]
    x, y = (
        {
            "title": axis_title(clean(str(chart.get(f"{name}_label", "")))),
            "range": [chart[name][0], chart[name][-1]],
        }
        for name in ("x", "y")
    )
    quiet = {"showgrid": False, "zeroline": False}
    return figure(traces, height=460, x={**x, **quiet}, y={**y, **quiet}, showlegend=True)


def _heat(chart: Mapping[str, Any]) -> dict[str, Any]:
    title = {"text": clean(str(chart.get("z_label", ""))), "side": "right", "font": {"size": 12}}
    return {
        "type": "heatmap",
        **{name: chart[name] for name in ("x", "y", "z")},
        "zmin": 0,
        "zsmooth": "best",
        "colorscale": HEAT,
        "colorbar": {"thickness": 12, "title": title},
        "hovertemplate": "%{z:.3~g}<extra></extra>",
    }


def _contour(
    chart: Mapping[str, Any], row: Mapping[str, Any], place: int, rows: Sequence[Any]
) -> dict[str, Any]:
    """Where the table is zero, as one line; equal names are one entry of the legend."""
    name = str(row.get("name", ""))
    names = list(dict.fromkeys(str(other.get("name", "")) for other in rows))
    free = CYCLE[len(chart.get("points", ())) :] or CYCLE  # colors that the points leave
    color = INK if len(names) == 1 else free[names.index(name) % len(free)]
    return {
        "type": "contour",
        "x": chart["x"],
        "y": chart["y"],
        "z": row["z"],
        "name": clean(name),
        "legendgroup": f"line {names.index(name)}",
        "showlegend": all(str(other.get("name", "")) != name for other in rows[:place]),
        "autocontour": False,
        "contours": {"start": 0, "end": 0, "size": 1, "coloring": "none"},
        "line": {"color": color, "width": 2.4},
        "showscale": False,
        "hoverinfo": "skip",
    }


def _points(row: Mapping[str, Any], place: int, heaviest: float) -> dict[str, Any]:
    color: dict[str, Any] = {"color": CYCLE[place % len(CYCLE)]}
    if row.get("values"):
        color = {"color": row["values"], "colorscale": "Viridis"}
    weights = row.get("weights") or [0.0] * len(row["x"])
    sizes = [
        round(SMALLEST + (LARGEST - SMALLEST) * max(weight, 0.0) / heaviest, 1)
        for weight in weights
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": clean(str(row.get("name", ""))) or "samples",
        "x": row["x"],
        "y": row["y"],
        "marker": {
            **color,
            "size": sizes,
            "opacity": 0.85,
            "line": {"color": "#ffffff", "width": 0.7},
        },
        "customdata": weights,
        "hovertemplate": "weight %{customdata:.3~g}",
    }


def variance_charts(variance: Variance) -> list[Chart]:
    """The histogram of the weights and, for two features, the plane."""
    if not variance.defined:
        return []
    return [_weights(variance), *([_plane(variance)] if variance.plane else [])]


def _weights(variance: Variance) -> Chart:
    ends = f"from {wording.number(variance.edges[0], 3)} to {wording.number(variance.largest, 3)}"
    suspects = f" Orange: suspects, which carry {variance.suspected}." if variance.suspects else ""
    return Chart(
        key="weights",
        title="Weights of all samples",
        caption=f"Weights {ends}, mean {wording.number(variance.mean, 3)}.{suspects}",
        alt=f"Histogram of the weights of {wording.count(variance.samples, 'sample')}, {ends}.",
        figure=weight_bars(variance),
        wide=True,
    )


def _plane(variance: Variance) -> Chart:
    assert variance.plane is not None
    drawn = (
        f"{len(variance.plane.points):,} of the {variance.samples:,} samples are drawn"
        if (len(variance.plane.points) < variance.samples)
        else "The samples lie on top"
    )
    boundary = (
        "; the black line is where the model changes its answer" if variance.plane.margins else ""
    )
    return Chart(
        key="plane",
        title="Local variance over the plane",
        caption=f"Color: variance of the labels of the {variance.k} samples nearest to a place. {drawn}, larger where "
        f"heavier{boundary}.",
        alt="Heat map of the local variance of the labels over the plane of both features, with the samples.",
        figure=plane_map(variance.plane),
        wide=True,
    )
