"""The chart kind ``surface``: a height over two numbers, in colors, with a colored floor and places marked on it.

``{"kind": "surface", "x": […], "y": […], "z": [[…]]}`` with ``z[row][column]`` at ``y[row]`` and
``x[column]``; it may carry ``color`` (another map of that shape; else the height), ``floor`` (a map
for the plane below), ``marks`` (each with ``x``, ``y``, ``name`` and ``color``), ``top`` (heights
above it are cut off) and the labels ``x_label``, ``y_label``, ``z_label``, ``color_label`` and
``floor_label``.

A surface as data for Plotly, to be turned by hand.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mindgap.core import InputError
from mindgap.report.style import CYCLE, FONT, GRAY, INK, LINE, MUTED, Figure, clean

Chart = Mapping[str, Any]
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
TALL = 0.72  # height of the box beside its sides
DEPTH = 0.28  # of the heights' range, between the lowest place and the floor


def surface_words(chart: Chart) -> str:
    """What the chart shows, for those who cannot see it."""
    check_surface(chart)
    parts = [
        f"{what} {chart.get(f'{key}_label', '')} from {_short(min(values))} to "
        f"{_short(max(values))}"
        for key, what in (("z", "height"), ("color", "color"), ("floor", "color of the floor"))
        if (values := finite(chart.get(key)))
    ]
    marks = [
        f"{mark.get('name', '')} at {_short(mark['x'])}, {_short(mark['y'])}, height "
        f"{_short(height_at(chart, mark))}"
        for mark in chart.get("marks", ())
    ]
    over = f"Surface over {chart.get('x_label', 'x')} and {chart.get('y_label', 'y')}: {'; '.join(parts)}."
    return over + (f" Marked: {'; '.join(marks)}." if marks else "")


def check_surface(chart: Chart) -> None:
    """Raise one sentence if a map does not fit the two axes."""
    wanted = (len(chart.get("y", ())), len(chart.get("x", ())))
    for name in ("z", "color", "floor"):
        table = chart.get(name)
        if table is None and name != "z":
            continue
        widths = {len(row) for row in table or ()}
        if min(wanted) < 2 or (len(table or ()), widths) != (wanted[0], {wanted[1]}):
            raise InputError(
                f"{name} of a surface must hold one row for each of y and one entry for each of "
                "x, at least two, got "
                f"{len(table or ())} rows for {wanted[0]} and widths {sorted(widths)} for "
                f"{wanted[1]}. Mend the chart."
            )
    if not finite(chart["z"]):
        raise InputError("z of a surface must hold a finite number, got none. Leave the chart out.")


def finite(table: Any) -> list[float]:
    """All finite numbers of a map."""
    return [value for row in table or () for value in row if known(value)]


def known(value: Any) -> bool:
    """Whether an entry of a map is a number that can be drawn."""
    return isinstance(value, int | float) and math.isfinite(value)


def levels(chart: Chart) -> tuple[float, float, float]:
    """Lowest and highest height that is drawn, and the height of the floor."""
    found = finite(chart["z"])
    low, high = min(found), min(max(found), chart.get("top") or math.inf)
    spread = (high - low) or 1.0
    return low, low + spread, low - (DEPTH * spread if chart.get("floor") else 0.0)


def visible(chart: Chart, name: str) -> tuple[float, float]:
    """Least and largest number of a map where the surface is drawn: what its colors have to tell apart."""
    top = levels(chart)[1]
    pairs = [
        pair
        for rows in zip(chart["z"], chart[name], strict=True)
        for pair in zip(*rows, strict=True)
    ]
    found = [value for height, value in pairs if known(height) and height <= top and known(value)]
    return min(found, default=0.0), max(found, default=1.0)


def height_at(chart: Chart, mark: Chart) -> float:
    """Height of the surface at the grid's place nearest to a mark; of the floor where there is a hole."""
    row, column = (_nearest(chart[name], mark[name]) for name in ("y", "x"))
    found = chart["z"][row][column]
    return float(found) if known(found) else levels(chart)[2]


def _nearest(axis: Sequence[float], value: float) -> int:
    right = min(max(bisect.bisect_left(axis, value), 1), len(axis) - 1)
    return right if axis[right] - value < value - axis[right - 1] else right - 1


def _short(value: float) -> str:
    return f"{value:.3g}"


HEIGHT = 560  # pixels


def surface_figure(chart: Chart) -> Figure:
    """The surface as data for Plotly."""
    check_surface(chart)
    _, high, base = levels(chart)
    words = {
        name: clean(str(chart.get(f"{name}_label", "")), 60)
        for name in ("x", "y", "z", "color", "floor")
    }
    traces = [_surface(chart, words)]
    traces += [_floor(chart, words, base)] if chart.get("floor") else []
    traces += [
        trace for k, mark in enumerate(chart.get("marks", ())) for trace in _mark(chart, mark, k)
    ]
    room = 0.04 * (high - base)
    scene = {
        "xaxis": _axis(words["x"]),
        "yaxis": _axis(words["y"]),
        "zaxis": {
            **_axis(words["z"]),
            "range": [base - room / 4, high if "top" in chart else high + room],
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
        "showlegend": bool(chart.get("marks")),
        "legend": legend,
        "scene": scene,
    }
    return {"data": traces, "layout": layout}


def _surface(chart: Chart, words: Mapping[str, str]) -> dict[str, Any]:
    lines = [f"{words[name] or name} %{{{name}:.3~f}}" for name in ("x", "y")]
    lines += [f"{words['z'] or 'height'} %{{z:.4~g}}"]
    lines += [f"{words['color']} %{{surfacecolor:.4~g}}"] if chart.get("color") else []
    lines += [f"{words['floor']} %{{customdata:.4~g}}"] if chart.get("floor") else []
    trace = {
        "type": "surface",
        **{name: list(chart[name]) for name in ("x", "y", "z")},
        "surfacecolor": chart.get("color") or chart["z"],
        **dict(
            zip(
                ("cmin", "cmax"),
                visible(chart, "color" if chart.get("color") else "z"),
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
    trace |= {"customdata": chart["floor"]} if chart.get("floor") else {}
    return trace


def _floor(chart: Chart, words: Mapping[str, str], base: float) -> dict[str, Any]:
    return {
        "type": "surface",
        "x": list(chart["x"]),
        "y": list(chart["y"]),
        "z": [[base] * len(chart["x"]) for _ in chart["y"]],
        "surfacecolor": chart["floor"],
        **dict(zip(("cmin", "cmax"), visible(chart, "floor"), strict=True)),
        "colorscale": [list(stop) for stop in FLOOR_SCALE],
        "colorbar": _bar(words["floor"], 0.26),
        "lighting": {"ambient": 1, "diffuse": 0, "specular": 0},
        "contours": {name: {"highlight": False} for name in ("x", "y", "z")},
        "hovertemplate": f"{words['floor']} %{{surfacecolor:.4~g}}<extra></extra>",
        "name": words["floor"],
        "showlegend": False,
    }


def _mark(chart: Chart, mark: Chart, place: int) -> list[dict[str, Any]]:
    """A line from the floor to the top, and a dot where it meets the surface."""
    color, name = (
        str(mark.get("color") or CYCLE[place % len(CYCLE)]),
        clean(str(mark.get("name", "")), 60),
    )
    _, high, base = levels(chart)
    height = min(height_at(chart, mark), high)
    common = {
        "type": "scatter3d",
        "legendgroup": f"mark {place}",
        "name": name,
        "hoverinfo": "name",
    }
    upright = {"x": [mark["x"]] * 2, "y": [mark["y"]] * 2, "z": [base, high]}
    dots = {"x": [mark["x"]] * 2, "y": [mark["y"]] * 2, "z": [base, height]}
    ring = {"color": color, "size": 5, "line": {"color": "#ffffff", "width": 1}}
    return [
        {**common, **upright, "mode": "lines", "line": {"color": color, "width": 7}},
        {**common, **dots, "mode": "markers", "marker": ring, "showlegend": False},
    ]


def _axis(title: str) -> dict[str, Any]:
    quiet = {
        "gridcolor": LINE,
        "zerolinecolor": LINE,
        "linecolor": GRAY,
        "backgroundcolor": "#ffffff",
    }
    spikes = {"spikecolor": GRAY, "spikethickness": 1, "spikesides": False}
    return {"title": {"text": title, "font": {"size": 13, "color": MUTED}}, **quiet, **spikes}


def _bar(title: str, middle: float) -> dict[str, Any]:
    text = {"text": title, "side": "top", "font": {"size": 12, "color": MUTED}}
    return {"title": text, "thickness": 12, "len": 0.46, "y": middle, "outlinewidth": 0}
