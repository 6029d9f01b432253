"""The page of `mindgap weights`: settings, weights, and the samples to look at."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from mindgap._version import __version__
from mindgap.core import write_whole
from mindgap.report import html, wording
from mindgap.report.sections.label_variance.figures import variance_charts
from mindgap.report.sections.label_variance.summary import Variance

NOISE = {
    "keep": "weighed like all others",
    "cap": "kept at weight 1",
    "drop": "dropped (weight 0)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """What a page tells besides the weights: the file, the settings, and where the weights were saved."""

    source: str
    settings: dict[str, Any]
    method: str
    recall: float
    saved: str = ""


def weights_page(variance: Variance, told: Told, path: str | os.PathLike[str]) -> Path:
    """Write the page to one HTML file that needs nothing else."""
    return write_whole(path, weights_html(variance, told))


def weights_html(variance: Variance, told: Told) -> str:
    """The page as text."""
    return html.render(
        "weights.html",
        variance=variance,
        told=told,
        charts=variance_charts(variance),
        settings=settings_in_words(variance, told),
        version=__version__,
    )


def settings_in_words(variance: Variance, told: Told) -> dict[str, str]:
    """Every setting as a reader would say it."""
    settings = told.settings
    scale = ", each feature divided by its standard deviation" if settings["standardize"] else ""
    largest = wording.number(float(settings["max_weight"]))
    normalized = "; then divided by the mean weight" if settings["normalize"] == "mean" else ""
    exact = told.recall == 1
    found = (
        "exactly"
        if exact
        else f"approximately: {wording.percent(told.recall)} of the true ones were found"
    )
    return {
        "Samples": f"{variance.samples:,}, from {told.source}",
        "Neighbors": f"{variance.k}, the sample itself among them, found {found}",
        "Sought in": f"{variance.features}, by {settings['metric']} distance{scale}",
        "Weights": f"1 where all neighbors carry the same label, {largest} where labels vary most{normalized}",
        "Suspects": NOISE[settings["noise"]],
    }
