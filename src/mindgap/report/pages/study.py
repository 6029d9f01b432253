"""The page of a study: its table, its charts, the paper's numbers and the cost."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindgap.core import UnknownNameError, find, ordered, restored, write_whole
from mindgap.core.spec import Words
from mindgap.report import html, wording
from mindgap.report.draw import draw_all
from mindgap.report.pages.claim import judge_study
from mindgap.report.parts import Verdict
from mindgap.runs.results import table_of


def study_page(
    results: Mapping[str, Any], path: str | os.PathLike[str], verdict: Verdict | None = None
) -> Path:
    """Write the results of a sweep to one HTML file.

    Args:
        results: What ``mindgap.runs.load_results`` reads.
        path: Where the page goes.
        verdict: What the page says first; a comparison with the published numbers if None.
    """
    return write_whole(path, study_html(results, verdict))


def study_html(results: Mapping[str, Any], verdict: Verdict | None = None) -> str:
    """Return the page as text."""
    # A file that was read as bare JSON holds infinities as words.
    results = restored(ordered(results, "results"))
    table, name, expected = table_of(results), str(results["study"]), results.get("expected", {})
    trials, words = _trials(results.get("trials", ())), _words(name)
    return html.render(
        "study.html",
        title=table.title,
        verdict=verdict or judge_study(table, expected, trials, words, name),
        words=words,
        table=table,
        charts=draw_all(table.charts, "chart"),
        expected=expected,
        trials=trials,
        provenance=_provenance(results),
    )


def _words(name: str) -> Words | None:
    try:
        return find(name, "study").words()
    except UnknownNameError:
        return None


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
        "Date": results["date"].replace("T", " ")[:16],
    }
