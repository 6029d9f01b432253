"""The charts of a study's table: lines or bars with their intervals, maps, planes and surfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindgap.report.style import CYCLE, Figure, axis_title, band, clean, figure, line, whiskers
from mindgap.report.surface_figure import surface_figure
from mindgap.report.variance_figures import plane_figure

DASHES = ("solid", "dash", "dot")
MODES = ("lines", "markers", "lines+markers")


def study_chart(chart: Mapping[str, Any]) -> Figure:
    """A chart of a study's table: lines (or bars) with the band from ``low`` to ``high``."""
    if chart.get("kind") == "heat":
        return _study_map(chart)
    if chart.get("kind") == "plane":
        return plane_figure(chart)
    if chart.get("kind") == "surface":
        return surface_figure(chart)
    kind = "bar" if chart.get("kind") == "bar" else "line"
    traces: list[dict[str, Any]] = []
    for k, row in enumerate(chart.get("series", ())):
        colour = CYCLE[k % len(CYCLE)]
        traces += _study_bars(row, colour) if kind == "bar" else _study_lines(row, colour, DASHES[k // len(CYCLE) % 3])
    x, y = ({"title": axis_title(clean(str(chart.get(key, ""))))} for key in ("x_label", "y_label"))
    x |= _scale(chart.get("x_scale"))
    y |= _scale(chart.get("y_scale"))
    return figure(traces, height=380, x=x, y=y, showlegend=len(traces) > 1, barmode="group")


def _scale(kind: Any) -> dict[str, Any]:
    """The scale of an axis; powers of ten are written as such, not as µ or n."""
    if kind == "log":
        return {"type": "log", "exponentformat": "power"}
    return {"type": kind} if kind in ("linear", "category") else {}


def _study_map(chart: Mapping[str, Any]) -> Figure:
    """A colour map of numbers above and below zero: blue is lower, red is higher, grey is no change."""
    trace: dict[str, Any] = {"type": "heatmap"} | {key: list(chart[key]) for key in ("x", "y", "z")}
    trace |= {"colorscale": "RdBu", "zmid": 0, "colorbar": {"thickness": 12}}
    x, y = ({"title": axis_title(clean(str(chart.get(key, ""))))} for key in ("x_label", "y_label"))
    x |= _scale(chart.get("x_scale"))
    y |= _scale(chart.get("y_scale"))
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


def _study_bars(row: Mapping[str, Any], colour: str) -> list[dict[str, Any]]:
    y = list(row.get("y", ()))
    trace: dict[str, Any] = {
        "type": "bar",
        "name": clean(str(row.get("name", ""))),
        "x": list(row.get("x", ())),
        "y": y,
        "marker": {"color": colour},
    }
    if row.get("low") and row.get("high"):
        above = [high - value for high, value in zip(row["high"], y, strict=True)]
        trace["error_y"] = whiskers(above, [value - low for low, value in zip(row["low"], y, strict=True)])
    return [trace]
