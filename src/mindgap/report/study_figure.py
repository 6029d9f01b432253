"""The charts of a study's table: lines or bars with their intervals, maps, planes and surfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindgap.report.style import CYCLE, Figure, axis_title, band, clean, figure, line, whiskers
from mindgap.report.surface_figure import surface_figure
from mindgap.report.variance_figures import plane_figure

DASHES = ("solid", "dash", "dot")
MOST_LETTERS = 110  # of all names together, that fit under bars side by side
MODES = ("lines", "markers", "lines+markers")


def study_chart(chart: Mapping[str, Any]) -> Figure:
    """A chart of a study's table: lines (or bars) with the band from ``low`` to ``high``."""
    if chart.get("kind") == "heat":
        return _study_map(chart)
    if chart.get("kind") == "plane":
        return plane_figure(chart)
    if chart.get("kind") == "surface":
        return surface_figure(chart)
    if chart.get("kind") == "bar":
        return _study_bars(chart)
    traces: list[dict[str, Any]] = []
    for k, row in enumerate(chart.get("series", ())):
        traces += _study_lines(row, CYCLE[k % len(CYCLE)], DASHES[k // len(CYCLE) % 3])
    x, y = _axes(chart)
    return figure(traces, height=380, x=x, y=y, showlegend=len(traces) > 1)


def _axes(chart: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    x, y = ({"title": axis_title(clean(str(chart.get(key, ""))))} for key in ("x_label", "y_label"))
    x |= _scale(chart.get("x_scale"))
    y |= _scale(chart.get("y_scale"))
    return x, y


def _scale(kind: Any) -> dict[str, Any]:
    """The scale of an axis; powers of ten are written as such, not as µ or n."""
    if kind == "log":
        return {"type": "log", "exponentformat": "power"}
    return {"type": kind} if kind in ("linear", "category") else {}


def _study_map(chart: Mapping[str, Any]) -> Figure:
    """A colour map of numbers above and below zero: blue is lower, red is higher, grey is no change."""
    trace: dict[str, Any] = {"type": "heatmap"} | {key: list(chart[key]) for key in ("x", "y", "z")}
    trace |= {"colorscale": "RdBu", "zmid": 0, "colorbar": {"thickness": 12}}
    x, y = _axes(chart)
    return figure([trace], height=440, x=x, y=y, showlegend=False)


def _study_lines(row: Mapping[str, Any], colour: str, dash: str) -> list[dict[str, Any]]:
    name, x, y = clean(str(row.get("name", ""))), list(row.get("x", ())), list(row.get("y", ()))
    curve = line(name, x, y, colour, dash) | {
        "mode": row["mode"] if row.get("mode") in MODES else "lines+markers",
        "legendgroup": name,
        "name": name,
    }
    curve["hovertemplate"] = f"{name}<br>%{{x}}: %{{y:.4~g}}<extra></extra>"
    if not row.get("low") or not row.get("high"):
        return [curve]
    edge = [*row["high"], *reversed(row["low"])]
    filled = band([*x, *reversed(x)], edge, colour, name) | {"legendgroup": name, "showlegend": False}
    return [filled, curve]


def _study_bars(chart: Mapping[str, Any]) -> Figure:
    """Bars that stand, or lie if their names are too long to stand side by side."""
    series = list(chart.get("series", ()))
    names = {str(name) for row in series for name in row.get("x", ())}
    lying = sum(map(len, names)) > MOST_LETTERS
    traces = [_bars(row, CYCLE[k % len(CYCLE)], lying) for k, row in enumerate(series)]
    x, y = _axes(chart)
    if lying:
        x, y = y, {**x, "autorange": "reversed"}
    height = 110 + len(names) * (14 + 18 * len(series)) if lying else 380
    return figure(traces, height=height, x=x, y=y, showlegend=len(traces) > 1, barmode="group")


def _bars(row: Mapping[str, Any], colour: str, lying: bool) -> dict[str, Any]:
    names, values = list(row.get("x", ())), list(row.get("y", ()))
    along, across = ("y", "x") if lying else ("x", "y")
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h" if lying else "v",
        "name": clean(str(row.get("name", ""))),
        along: names,
        across: values,
        "marker": {"color": colour},
    }
    if row.get("low") and row.get("high"):
        above = [high - value for high, value in zip(row["high"], values, strict=True)]
        below = [value - low for low, value in zip(row["low"], values, strict=True)]
        trace[f"error_{across}"] = whiskers(above, below)
    return trace
