"""The page of `mindgap weights`: settings, weights, and the samples to look at."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from mindgap.core import Advice, write_whole
from mindgap.ops.variance.heaviest import MANY_SUSPECTS, Look
from mindgap.report import html, wording
from mindgap.report.draw import draw_all
from mindgap.report.parts import Tone, Verdict

NOISE = {
    "keep": "weighed like all others",
    "cap": "kept at weight 1",
    "drop": "dropped (weight 0)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """What a page tells besides the weights.

    Args:
        source: The file of the data, if there is one.
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
        verdict=judge_weights(found),
        found=found,
        told=told,
        charts=draw_all(found.charts, "weights"),
        settings=settings_in_words(found, told),
    )


def judge_weights(found: Look) -> Verdict:
    """Say how many samples the weights single out, and whether their labels can be trusted."""
    kind, label, tone, headline = _case(found)
    share = wording.percent(found.varied / found.samples)
    many = found.suspects > MANY_SUSPECTS * found.samples
    sentences = [
        f"The labels differ among the {found.k} nearest samples of {found.varied:,} of "
        f"{wording.count(found.samples, 'sample')} ({share}).",
        f"Weights reach {wording.number(found.largest, 3)}, with mean "
        f"{wording.number(found.mean, 3)}.",
    ]
    if found.suspects:
        sentences.append(
            "A suspect carries a label that hardly fits those of its neighbors: "
            f"{wording.count(found.suspects, 'sample')} here."
        )
    if many:
        sentences.append("So many mean that neighbors say little about labels in these features.")
    return Verdict(
        kind=kind,
        label=label,
        tone=tone,
        headline=headline,
        sentences=tuple(sentences),
        advice=tuple(Advice(text=text) for text in _next_steps(found, many)),
    )


def _case(found: Look) -> tuple[str, str, Tone, str]:
    if not found.varied:
        return (
            "nothing",
            "Nothing to weight",
            "neutral",
            "All neighbors of every sample carry its label: the weights are equal.",
        )
    if found.suspects:
        return (
            "suspects",
            "Check labels first",
            "warn",
            f"{wording.count(found.suspects, 'label')} may be wrong, and weights amplify wrong "
            "labels.",
        )
    return (
        "weights",
        "Not tested yet",
        "neutral",
        "The weights are ready; whether they help is not known yet.",
    )


def _next_steps(found: Look, many: bool) -> list[str]:
    if not found.varied:
        return ["Train without weights, or search neighbors in other features or with a larger k."]
    control = (
        "Train with these weights, without weights, and with the same weights on other samples."
    )
    if many:
        return ["Search neighbors in better features, such as those of a trained network.", control]
    if found.suspects:
        return ["Look at the suspects and correct their labels, or drop them.", control]
    return ["Look at the heaviest samples.", control]


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
        "Samples": f"{found.samples:,}{f', from {told.source}' if told.source else ''}",
        "Neighbors": f"{found.k}, the sample itself among them, found {exactly}",
        "Searched in": f"{told.features}, by {settings['metric']} distance{scale}",
        "Weights": (
            f"1 where all neighbors carry the same label, {largest} where labels vary most"
            f"{normalized}"
        ),
        "Suspects": NOISE[settings["noise"]],
    }
