"""The page of `mindgap weights`: settings, weights, and the samples to look at."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from mindgap._version import __version__
from mindgap.core import write_whole
from mindgap.ops.variance.heaviest import Look
from mindgap.report import html, wording
from mindgap.report.draw import draw_all

NOISE = {
    "keep": "weighed like all others",
    "cap": "kept at weight 1",
    "drop": "dropped (weight 0)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """What a page tells besides the weights.

    Args:
        source: The file of the data.
        features: What neighbors were searched in.
        settings: How the weights were made.
        method: How the neighbors were found.
        recall: The share of the true neighbors that were found.
        saved: Where the weights were saved.
    """

    source: str
    features: str
    settings: dict[str, Any]
    method: str
    recall: float
    saved: str = ""


def weights_page(found: Look, told: Told, path: str | os.PathLike[str]) -> Path:
    """Write the page to one HTML file that needs nothing else.

    Args:
        found: The weights, and the samples to look at.
        told: Where they come from.
        path: Where the page goes.
    """
    return write_whole(path, _html(found, told))


def _html(found: Look, told: Told) -> str:
    """Return the page as text."""
    return html.render(
        "weights.html",
        found=found,
        told=told,
        charts=draw_all(found.charts, "weights"),
        settings=settings_in_words(found, told),
        version=__version__,
    )


def settings_in_words(found: Look, told: Told) -> dict[str, str]:
    """Return every setting as a reader would say it."""
    settings = told.settings
    scale = ", each feature divided by its standard deviation" if settings["standardize"] else ""
    largest = wording.number(float(settings["max_weight"]))
    normalized = "; then divided by the mean weight" if settings["normalize"] == "mean" else ""
    exactly = (
        "exactly"
        if told.recall == 1
        else f"approximately: {wording.percent(told.recall)} of the true ones were found"
    )
    return {
        "Samples": f"{found.samples:,}, from {told.source}",
        "Neighbors": f"{found.k}, the sample itself among them, found {exactly}",
        "Searched in": f"{told.features}, by {settings['metric']} distance{scale}",
        "Weights": (
            f"1 where all neighbors carry the same label, {largest} where labels vary most"
            f"{normalized}"
        ),
        "Suspects": NOISE[settings["noise"]],
    }
