"""A surface as data for Plotly: colored heights over a colored floor, with marked places."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mindgap.core import Mark, Points, Surface
from mindgap.core.chart.numbers import finite, known
from mindgap.report.style import CYCLE, FONT, GRAY, INK, LINE, MUTED, PAPER, Figure, clean

Scale = Sequence[tuple[float, str]]
SCALE: Scale = (  # Viridis: even in lightness, also in gray and to every kind of color vision
    (0.0, "#440154"),
    (0.25, "#3b528b"),
    (0.5, "#21918c"),
    (0.75, "#5ec962"),
    (1.0, "#fde725"),
)
FLOOR_SCALE: Scale = ((0.0, "#5a3a1b"), (0.35, "#b07a45"), (0.7, "#e6cfae"), (1.0, "#faf6ee"))
EYE = {"x": -1.12, "y": -1.12, "z": 0.86}
TALL = 0.72  # height of the box, in units of its sides
HEIGHT = 560  # pixels
DEPTH = 0.28  # of the heights' range, between the lowest place and the floor


def levels(chart: Surface) -> tuple[float, float, float]:
    """Lowest and highest height that is drawn, and the height of the floor."""
    found = finite(chart.z)
    low, high = min(found), min(max(found), math.inf if chart.top is None else chart.top)
    spread = (high - low) or 1.0
    return low, low + spread, low - (DEPTH * spread if chart.floor else 0.0)


def visible(chart: Surface, name: str) -> tuple[float, float]:
    """Return the range of a map where the surface is drawn, which its colors must tell apart."""
    top = levels(chart)[1]
    pairs = [
        pair
        for rows in zip(chart.z, getattr(chart, name), strict=True)
        for pair in zip(*rows, strict=True)
    ]
    found = [value for height, value in pairs if known(height) and height <= top and known(value)]
    return min(found, default=0.0), max(found, default=1.0)


def height_at(chart: Surface, mark: Mark) -> float:
    """Height of the surface at a mark; of the floor where there is a hole."""
    found = chart.height_at(mark)
    return levels(chart)[2] if found is None else found


def surface_figure(chart: Surface) -> Figure:
    """Return the surface as data for Plotly."""
    _, high, base = levels(chart)
    words = {
        name: clean(getattr(chart, f"{name}_label"), 60)
        for name in ("x", "y", "z", "color", "floor")
    }
    traces = [_surface(chart, words)]
    traces += [_floor(chart, words, base)] if chart.floor else []
    traces += [trace for k, mark in enumerate(chart.marks) for trace in _mark(chart, mark, k)]
    traces += [_path(row, path_color(chart, k), high) for k, row in enumerate(chart.paths)]
    room = 0.04 * (high - base)
    scene = {
        "xaxis": _axis(words["x"]),
        "yaxis": _axis(words["y"]),
        "zaxis": {
            **_axis(words["z"]),
            "range": [base - room / 4, high if chart.top is not None else high + room],
        },
        "aspectmode": "manual",
        "aspectratio": {"x": 1, "y": 1, "z": TALL},
        "camera": {"eye": EYE, "center": {"x": 0, "y": 0, "z": -0.18}},
        "dragmode": "turntable",
    }
    legend = {"orientation": "h", "x": 0, "y": 1.0, "xanchor": "left", "yanchor": "bottom"}
    layout = {
        "height": HEIGHT,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": INK},
        "margin": {"l": 0, "r": 0, "t": 28, "b": 0},
        "hoverlabel": {"font": {"family": FONT}, "align": "left"},
        "showlegend": bool(chart.marks or chart.paths),
        "legend": legend,
        "scene": scene,
    }
    return {"data": traces, "layout": layout}


def _surface(chart: Surface, words: Mapping[str, str]) -> dict[str, Any]:
    lines = [f"{words[name] or name} %{{{name}:.3~f}}" for name in ("x", "y")]
    lines += [f"{words['z'] or 'height'} %{{z:.4~g}}"]
    lines += [f"{words['color']} %{{surfacecolor:.4~g}}"] if chart.color else []
    lines += [f"{words['floor']} %{{customdata:.4~g}}"] if chart.floor else []
    trace = {
        "type": "surface",
        **{name: list(getattr(chart, name)) for name in ("x", "y", "z")},
        "surfacecolor": chart.color or chart.z,
        **dict(
            zip(
                ("cmin", "cmax"),
                visible(chart, "color" if chart.color else "z"),
                strict=True,
            )
        ),
        "colorscale": [list(stop) for stop in SCALE],
        "colorbar": _bar(words["color"] or words["z"], 0.76),
        "lighting": {
            "ambient": 0.78,
            "diffuse": 0.5,
            "specular": 0.06,
            "roughness": 0.9,
            "fresnel": 0.05,
        },
        "lightposition": {"x": -2000, "y": -1000, "z": 8000},
        "contours": {name: {"highlight": False} for name in ("x", "y", "z")},
        "hovertemplate": "<br>".join(lines) + "<extra></extra>",
        "name": words["z"],
        "showlegend": False,
    }
    trace |= {"customdata": chart.floor} if chart.floor else {}
    return trace


def _floor(chart: Surface, words: Mapping[str, str], base: float) -> dict[str, Any]:
    return {
        "type": "surface",
        "x": list(chart.x),
        "y": list(chart.y),
        "z": [[base] * len(chart.x) for _ in chart.y],
        "surfacecolor": chart.floor,
        **dict(zip(("cmin", "cmax"), visible(chart, "floor"), strict=True)),
        "colorscale": [list(stop) for stop in FLOOR_SCALE],
        "colorbar": _bar(words["floor"], 0.26),
        "lighting": {"ambient": 1, "diffuse": 0, "specular": 0},
        "contours": {name: {"highlight": False} for name in ("x", "y", "z")},
        "hovertemplate": f"{words['floor']} %{{surfacecolor:.4~g}}<extra></extra>",
        "name": words["floor"],
        "showlegend": False,
    }


def _mark(chart: Surface, mark: Mark, place: int) -> list[dict[str, Any]]:
    """Return a line from the floor to the top, and a dot where it meets the surface."""
    color, name = (
        str(mark.color or CYCLE[place % len(CYCLE)]),
        clean(mark.name, 60),
    )
    _, high, base = levels(chart)
    height = min(height_at(chart, mark), high)
    common = {
        "type": "scatter3d",
        "legendgroup": f"mark {place}",
        "name": name,
        "hoverinfo": "name",
    }
    upright = {"x": [mark.x] * 2, "y": [mark.y] * 2, "z": [base, high]}
    dots = {"x": [mark.x] * 2, "y": [mark.y] * 2, "z": [base, height]}
    ring = {"color": color, "size": 5, "line": {"color": PAPER, "width": 1}}
    return [
        {**common, **upright, "mode": "lines", "line": {"color": color, "width": 7}},
        {**common, **dots, "mode": "markers", "marker": ring, "showlegend": False},
    ]


def path_color(chart: Surface, place: int) -> str:
    """Return the color of a path, which no mark has."""
    return CYCLE[(len(chart.marks) + place) % len(CYCLE)]


def _path(row: Points, color: str, high: float) -> dict[str, Any]:
    """Return a line with dots; it is cut where it leaves the box."""
    heights = [value if known(value) and value <= high else None for value in row.values]
    return {
        "type": "scatter3d",
        "mode": "lines+markers",
        "x": list(row.x),
        "y": list(row.y),
        "z": heights,
        "name": clean(row.name, 60),
        "line": {"color": color, "width": 6},
        "marker": {"color": color, "size": 3},
        "hovertemplate": "%{z:.4~g}",
    }


def _axis(title: str) -> dict[str, Any]:
    quiet = {
        "gridcolor": LINE,
        "zerolinecolor": LINE,
        "linecolor": GRAY,
        "backgroundcolor": PAPER,
    }
    spikes = {"spikecolor": GRAY, "spikethickness": 1, "spikesides": False}
    return {"title": {"text": title, "font": {"size": 13, "color": MUTED}}, **quiet, **spikes}


def _bar(title: str, middle: float) -> dict[str, Any]:
    text = {"text": title, "side": "top", "font": {"size": 12, "color": MUTED}}
    return {"title": text, "thickness": 12, "len": 0.46, "y": middle, "outlinewidth": 0}
