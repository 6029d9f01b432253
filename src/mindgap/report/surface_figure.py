"""A surface as data for Plotly, to be turned by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindgap.report.style import CYCLE, FONT, GREY, INK, LINE, MUTED, Figure, clean
from mindgap.report.surface import EYE, FLOOR_SCALE, SCALE, TALL, Chart, check_surface, height_at, levels, visible

HEIGHT = 560  # pixels


def surface_figure(chart: Chart) -> Figure:
    """The surface as data for Plotly."""
    check_surface(chart)
    _, high, base = levels(chart)
    words = {name: clean(str(chart.get(f"{name}_label", "")), 60) for name in ("x", "y", "z", "color", "floor")}
    traces = [_surface(chart, words)]
    traces += [_floor(chart, words, base)] if chart.get("floor") else []
    traces += [trace for k, mark in enumerate(chart.get("marks", ())) for trace in _mark(chart, mark, k)]
    room = 0.04 * (high - base)
    scene = {
        "xaxis": _axis(words["x"]),
        "yaxis": _axis(words["y"]),
        "zaxis": {**_axis(words["z"]), "range": [base - room / 4, high if "top" in chart else high + room]},
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
        **dict(zip(("cmin", "cmax"), visible(chart, "color" if chart.get("color") else "z"), strict=True)),
        "colorscale": [list(stop) for stop in SCALE],
        "colorbar": _bar(words["color"] or words["z"], 0.76),
        "lighting": {"ambient": 0.78, "diffuse": 0.5, "specular": 0.06, "roughness": 0.9, "fresnel": 0.05},
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
    colour, name = str(mark.get("color") or CYCLE[place % len(CYCLE)]), clean(str(mark.get("name", "")), 60)
    _, high, base = levels(chart)
    height = min(height_at(chart, mark), high)
    common = {"type": "scatter3d", "legendgroup": f"mark {place}", "name": name, "hoverinfo": "name"}
    upright = {"x": [mark["x"]] * 2, "y": [mark["y"]] * 2, "z": [base, high]}
    dots = {"x": [mark["x"]] * 2, "y": [mark["y"]] * 2, "z": [base, height]}
    ring = {"color": colour, "size": 5, "line": {"color": "#ffffff", "width": 1}}
    return [
        {**common, **upright, "mode": "lines", "line": {"color": colour, "width": 7}},
        {**common, **dots, "mode": "markers", "marker": ring, "showlegend": False},
    ]


def _axis(title: str) -> dict[str, Any]:
    quiet = {"gridcolor": LINE, "zerolinecolor": LINE, "linecolor": GREY, "backgroundcolor": "#ffffff"}
    spikes = {"spikecolor": GREY, "spikethickness": 1, "spikesides": False}
    return {"title": {"text": title, "font": {"size": 13, "color": MUTED}}, **quiet, **spikes}


def _bar(title: str, middle: float) -> dict[str, Any]:
    text = {"text": title, "side": "top", "font": {"size": 12, "color": MUTED}}
    return {"title": text, "thickness": 12, "len": 0.46, "y": middle, "outlinewidth": 0}
