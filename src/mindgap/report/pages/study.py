"""The page of a study: its table, its charts, the paper's numbers and the cost."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindgap.core import ordered, restored, write_whole
from mindgap.core.table import TINY
from mindgap.report import html, wording
from mindgap.report.draw import draw_all
from mindgap.report.pages.claim import counted_trials, judge_results, words_of_study
from mindgap.report.parts import Verdict
from mindgap.runs.results import is_tiny, table_of


def study_page(
    results: Mapping[str, Any],
    path: str | os.PathLike[str],
    verdict: Verdict | None = None,
    kind: str = "study",
) -> Path:
    """Write the results of a sweep to one HTML file.

    Args:
        results: What ``mindgap.runs.load_results`` reads.
        path: Where the page goes.
        verdict: What the page says first; a comparison with what was published if None.
        kind: What kind of page it is, in a word or two.
    """
    return write_whole(path, study_html(results, verdict, kind))


def study_html(
    results: Mapping[str, Any], verdict: Verdict | None = None, kind: str = "study"
) -> str:
    """Return the page as text."""
    # A file that was read as bare JSON holds infinities as words.
    results = restored(ordered(results, "results"))
    table, tiny = table_of(results), is_tiny(results)
    if tiny and TINY not in table.notes:
        table = table.stamped()
    return html.render(
        "study.html",
        title=table.title,
        verdict=verdict or judge_results(results),
        words=words_of_study(str(results["study"])),
        table=table,
        kind=kind,
        tiny=tiny,
        charts=draw_all(table.charts, "chart"),
        expected=results.get("expected", {}),
        trials=counted_trials(results.get("trials", ())),
        provenance=_provenance(results),
    )


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
