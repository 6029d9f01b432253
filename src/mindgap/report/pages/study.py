"""The page of a study: its table, its charts, the paper's numbers and the cost.

The charts of a study's table: lines or bars with their intervals, maps, planes and surfaces.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindgap.core import UnknownNameError, find, ordered, restored, write_whole
from mindgap.core.spec import Words
from mindgap.report import html, wording
from mindgap.report.pages.surface import surface_figure, surface_words
from mindgap.report.pages.surface_still import surface_still
from mindgap.report.sections.label_variance.figures import plane_figure
from mindgap.report.style import (
    CYCLE,
    Chart,
    Figure,
    axis_title,
    band,
    clean,
    figure,
    line,
    whiskers,
)
from mindgap.runs.results import table_of

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
    """A color map of numbers above and below zero: blue is lower, red is higher, gray is no change."""
    trace: dict[str, Any] = {"type": "heatmap"} | {key: list(chart[key]) for key in ("x", "y", "z")}
    trace |= {"colorscale": "RdBu", "zmid": 0, "colorbar": {"thickness": 12}}
    x, y = _axes(chart)
    return figure([trace], height=440, x=x, y=y, showlegend=False)


def _study_lines(row: Mapping[str, Any], color: str, dash: str) -> list[dict[str, Any]]:
    name, x, y = clean(str(row.get("name", ""))), list(row.get("x", ())), list(row.get("y", ()))
    curve = line(name, x, y, color, dash) | {
        "mode": row["mode"] if row.get("mode") in MODES else "lines+markers",
        "legendgroup": name,
        "name": name,
    }
    curve["hovertemplate"] = f"{name}<br>%{{x}}: %{{y:.4~g}}<extra></extra>"
    if not row.get("low") or not row.get("high"):
        return [curve]
    edge = [*row["high"], *reversed(row["low"])]
    filled = band([*x, *reversed(x)], edge, color, name) | {
        "legendgroup": name,
        "showlegend": False,
    }
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


def _bars(row: Mapping[str, Any], color: str, lying: bool) -> dict[str, Any]:
    names, values = list(row.get("x", ())), list(row.get("y", ()))
    along, across = ("y", "x") if lying else ("x", "y")
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h" if lying else "v",
        "name": clean(str(row.get("name", ""))),
        along: names,
        across: values,
        "marker": {"color": color},
    }
    if row.get("low") and row.get("high"):
        above = [high - value for high, value in zip(row["high"], values, strict=True)]
        below = [value - low for low, value in zip(row["low"], values, strict=True)]
        trace[f"error_{across}"] = whiskers(above, below)
    return trace


TURN = "Drag or use the arrow keys to turn it, the wheel or + and − to zoom, 0 to go back; point at a place to read it."


def study_page(results: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the results of a sweep, as ``mindgap.runs.load_results`` reads them, to one HTML file."""
    return write_whole(path, study_html(results))


def study_html(results: Mapping[str, Any]) -> str:
    """The page as text."""
    results = restored(
        ordered(results, "results")
    )  # a file read as bare JSON holds infinities as words
    charts = results["table"].get("charts", ())
    return html.render(
        "study.html",
        title=str(results["table"]["title"]),
        words=_words(str(results["study"])),
        table=table_of(results),
        charts=[
            _chart(k, chart) for k, chart in enumerate(charts) if chart.get("kind") != "gallery"
        ],
        galleries=[chart for chart in charts if chart.get("kind") == "gallery"],
        expected=results.get("expected", {}),
        trials=_trials(results.get("trials", ())),
        provenance=_provenance(results),
    )


def _words(name: str) -> Words | None:
    try:
        return find(name, "study").words()
    except UnknownNameError:
        return None


def _chart(place: int, chart: Mapping[str, Any]) -> Chart:
    title = str(chart.get("title", "")) or f"Chart {place + 1}"
    names = ", ".join(str(row.get("name", "")) for row in chart.get("series", ()))
    alt = f"{title}: {chart.get('y_label', '')} against {chart.get('x_label', '')} for {names}."
    caption = "Bands and bars are the intervals of the table." if _has_intervals(chart) else ""
    more: dict[str, Any] = {
        "alt": alt,
        "caption": caption,
        "wide": chart.get("wide", True) is not False,
    }
    if chart.get("kind") == "surface":
        more |= {
            "alt": f"{title}. {surface_words(chart)}",
            "caption": TURN,
            "still": surface_still(chart),
        }
    return Chart(key=f"chart-{place}", title=title, figure=study_chart(chart), **more)


def _has_intervals(chart: Mapping[str, Any]) -> bool:
    return any(row.get("low") and row.get("high") for row in chart.get("series", ()))


def _trials(trials: Any) -> dict[str, Any]:
    counts = {
        status: sum(trial["status"] == status for trial in trials)
        for status in ("done", "failed", "missing")
    }
    errors = list(dict.fromkeys(trial["error"] for trial in trials if trial.get("error")))
    return {"total": len(trials), "errors": errors, **counts}


def _provenance(results: Mapping[str, Any]) -> dict[str, str]:
    cost = results.get("cost", {})
    times = {"Time in workers": "wall_seconds", "CPU time": "cpu_seconds"} if cost else {}
    return {
        "Study": str(results["study"]),
        **{
            wording.title(str(name)): wording.cell(value)
            for name, value in results.get("fields", {}).items()
        },
        **{words: wording.seconds(float(cost.get(name, 0.0))) for words, name in times.items()},
        **{str(name): wording.cell(found) for name, found in results.get("versions", {}).items()},
        **({"Code": str(results["code"])} if results.get("code") else {}),
        "Date": str(results.get("date", "")).replace("T", " ")[:16],
    }
