"""The figures of a report: plain parts in, Plotly figures (dicts of data and layout) out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mindgap.core.errors import require
from mindgap.core.result import Result
from mindgap.core.stats import proportion_interval
from mindgap.report import wording
from mindgap.report.curves import series, turning_point
from mindgap.report.parts import Facts, Layers
from mindgap.report.style import (
    AMBER,
    BARE,
    GREEN,
    MUTED,
    QUIET,
    TEST,
    TRAIN,
    Figure,
    axis_title,
    band,
    clean,
    figure,
    line,
    named,
    upright,
    whiskers,
)

ARMS = {"train": (TRAIN, "solid"), "validation": (GREEN, "dot"), "test": (TEST, "solid")}
MOST_TENSORS = 40  # bars that still fit on a screen


def library() -> str:
    """The script that draws figures, to be inlined once."""
    require("plotly", "report")
    return str(require("plotly.offline", "report").get_plotlyjs())


def gap_bar(facts: Facts, gap: Result) -> Figure:
    """Train error, test error and gap as bars, the last two with the interval."""
    value, unit = gap.value or 0.0, "error rate" if facts.rate else "loss"
    below, above = _arms(value, gap)
    bar = {"type": "bar", "orientation": "h", "width": 0.55, "hovertemplate": "%{y}: %{x:.4~g}<extra></extra>"}
    unseen = {"y": ["Gap", "Test"], "x": [value, facts.test_error or 0.0], "marker": {"color": [AMBER, TEST]}}
    seen = {"y": ["Train"], "x": [facts.train_error], "marker": {"color": TRAIN}}
    arms = {"error_x": whiskers([above, above], [below, below])}
    x = {"title": axis_title(f"{unit} (bars: {wording.level(gap.interval)} interval)"), "rangemode": "tozero"}
    x |= {"tickformat": ".1~%"} if facts.rate else {}
    return figure([{**bar, **unseen, **arms}, {**bar, **seen}], height=210, x=x, y=QUIET, showlegend=False, margin=BARE)


def _arms(value: float, result: Result) -> tuple[float, float]:
    if result.interval is None or not math.isfinite(result.interval.high):
        return 0.0, 0.0
    return max(value - result.interval.low, 0.0), max(result.interval.high - value, 0.0)


def training_curve(curves: Sequence[Mapping[str, float]], quantity: str, facts: Facts) -> Figure | None:
    """Train, validation and test ``quantity`` ("loss" or "error") over the epochs; none if it was not recorded."""
    drawn = {which: series(curves, f"{which}_{quantity}") for which in ARMS}
    traces = [line(which, *found, *ARMS[which]) for which, found in drawn.items() if found[1]]
    if not traces:
        return None
    if quantity == "loss":
        y = {"title": axis_title(f"loss ({clean(facts.loss, 40)})"), "rangemode": "tozero"}
        return figure(traces, height=300, x={"title": axis_title("epoch")}, y=y, shapes=_turn(curves))
    if facts.test_samples and drawn["test"][1]:
        traces.insert(0, _sampling_band(*drawn["test"], facts.test_samples))
    y = {"title": axis_title("error rate"), "rangemode": "tozero", "tickformat": ".1~%"}
    return figure(traces, height=300, x={"title": axis_title("epoch")}, y=y)


def _sampling_band(epochs: Sequence[float], values: Sequence[float], samples: int) -> dict[str, Any]:
    ends = [proportion_interval(round(value * samples), samples) for value in values]
    edge = [*(end.high for end in ends), *(end.low for end in reversed(ends))]
    return band([*epochs, *reversed(epochs)], edge, TEST, "95 % interval") | {"legendrank": 2000}


def _turn(curves: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    turn = turning_point(curves)
    if turn is None:
        return []
    text = {
        "text": f"lowest {turn.which} loss",
        "textangle": 0,
        "textposition": "end",
        "xanchor": "left",
        "yanchor": "top",
    }
    return [upright(turn.epoch, dash="dot", colour=MUTED, label={**text, "font": {"size": 11, "color": MUTED}})]


def layer_bars(layers: Layers) -> Figure:
    """One bar a tensor, first layer on top; only the largest where there are very many."""
    chosen = sorted(sorted(range(len(layers.names)), key=lambda k: -abs(layers.values[k]))[:MOST_TENSORS])
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(chosen))),
        "x": [layers.values[k] for k in chosen],
        "text": [clean(layers.names[k]) for k in chosen],
        "textposition": "none",
        "marker": {"color": TRAIN},
        "hovertemplate": "%{text}: %{x:.4~g}<extra></extra>",
    }
    y = {**named([layers.names[k] for k in chosen]), "autorange": "reversed", "tickfont": {"size": 12}}
    x = {"title": axis_title(clean(layers.title).lower())}
    return figure([trace], height=90 + 22 * len(chosen), x=x, y=y, showlegend=False, margin=BARE)
