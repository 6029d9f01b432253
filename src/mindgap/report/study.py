"""The page of a study: its table, its charts, the paper's numbers and the cost."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindgap.core.errors import UnknownNameError
from mindgap.core.files import write_whole
from mindgap.core.registry import find
from mindgap.core.words import Words
from mindgap.report import page, wording
from mindgap.report.chart import Chart
from mindgap.report.study_figure import study_chart
from mindgap.report.surface import surface_words
from mindgap.report.surface_still import surface_still
from mindgap.runs.plain import ordered, restored
from mindgap.runs.results import table_of

TURN = "Drag or use the arrow keys to turn it, the wheel or + and − to zoom, 0 to go back; point at a place to read it."


def study_page(results: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the results of a sweep, as ``mindgap.runs.load_results`` reads them, to one HTML file."""
    return write_whole(path, study_html(results))


def study_html(results: Mapping[str, Any]) -> str:
    """The page as text."""
    results = restored(ordered(results, "results"))  # a file read as bare JSON holds infinities as words
    charts = results["table"].get("charts", ())
    return page.render(
        "study.html",
        title=str(results["table"]["title"]),
        words=_words(str(results["study"])),
        table=table_of(results),
        charts=[_chart(k, chart) for k, chart in enumerate(charts) if chart.get("kind") != "gallery"],
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
    more: dict[str, Any] = {"alt": alt, "caption": caption, "wide": chart.get("wide", True) is not False}
    if chart.get("kind") == "surface":
        more |= {"alt": f"{title}. {surface_words(chart)}", "caption": TURN, "still": surface_still(chart)}
    return Chart(key=f"chart-{place}", title=title, figure=study_chart(chart), **more)


def _has_intervals(chart: Mapping[str, Any]) -> bool:
    return any(row.get("low") and row.get("high") for row in chart.get("series", ()))


def _trials(trials: Any) -> dict[str, Any]:
    counts = {status: sum(trial["status"] == status for trial in trials) for status in ("done", "failed", "missing")}
    errors = list(dict.fromkeys(trial["error"] for trial in trials if trial.get("error")))
    return {"total": len(trials), "errors": errors, **counts}


def _provenance(results: Mapping[str, Any]) -> dict[str, str]:
    cost = results.get("cost", {})
    times = {"Time in workers": "wall_seconds", "Processor time": "cpu_seconds"} if cost else {}
    return {
        "Study": str(results["study"]),
        **{wording.title(str(name)): wording.cell(value) for name, value in results.get("fields", {}).items()},
        **{words: wording.seconds(float(cost.get(name, 0.0))) for words, name in times.items()},
        **{str(name): wording.cell(found) for name, found in results.get("versions", {}).items()},
        **({"Code": str(results["code"])} if results.get("code") else {}),
        "Date": str(results.get("date", "")).replace("T", " ")[:16],
    }
