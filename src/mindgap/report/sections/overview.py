"""Which figures stand in which section of a page, with their captions and the words for those who cannot see them.

The figures of a report: plain parts in, Plotly figures (dicts of data and layout) out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mindgap.core import Result, proportion_interval, require
from mindgap.report import wording
from mindgap.report.parts import Facts, Layers
from mindgap.report.sections import spread
from mindgap.report.sections.bounds import bounds_chart
from mindgap.report.sections.label_variance.figures import variance_charts
from mindgap.report.style import (
    AMBER,
    BARE,
    GREEN,
    MUTED,
    QUIET,
    TEST,
    TRAIN,
    Chart,
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
from mindgap.report.verdict.facts import series, turning_point

if TYPE_CHECKING:
    from mindgap.report.report import Report


ARMS = {"train": (TRAIN, "solid"), "validation": (GREEN, "dot"), "test": (TEST, "solid")}
MOST_TENSORS = 40  # bars that still fit on a screen


def library() -> str:
    """The script that draws figures, to be inlined once."""
    require("plotly", "report")
    return str(require("plotly.offline", "report").get_plotlyjs())


def gap_bar(facts: Facts, gap: Result) -> Figure:
    """Training error, test error and gap as bars, the last two with the interval."""
    value, unit = gap.value or 0.0, "error rate" if facts.rate else "loss"
    below, above = _arms(value, gap)
    bar = {
        "type": "bar",
        "orientation": "h",
        "width": 0.55,
        "hovertemplate": "%{y}: %{x:.4~g}<extra></extra>",
    }
    unseen = {
        "y": ["Gap", "Test"],
        "x": [value, facts.test_error or 0.0],
        "marker": {"color": [AMBER, TEST]},
    }
    seen = {"y": ["Train"], "x": [facts.train_error], "marker": {"color": TRAIN}}
    arms = {"error_x": whiskers([above, above], [below, below])}
    x = {
        "title": axis_title(f"{unit} (bars: {wording.level(gap.interval)} interval)"),
        "rangemode": "tozero",
    }
    x |= {"tickformat": ".1~%"} if facts.rate else {}
    return figure(
        [{**bar, **unseen, **arms}, {**bar, **seen}],
        height=210,
        x=x,
        y=QUIET,
        showlegend=False,
        margin=BARE,
    )


def _arms(value: float, result: Result) -> tuple[float, float]:
    if result.interval is None or not math.isfinite(result.interval.high):
        return 0.0, 0.0
    return max(value - result.interval.low, 0.0), max(result.interval.high - value, 0.0)


def training_curve(
    curves: Sequence[Mapping[str, float]], quantity: str, facts: Facts
) -> Figure | None:
    """Train, validation and test ``quantity`` ("loss" or "error") over the epochs; none if it was not recorded."""
    drawn = {which: series(curves, f"{which}_{quantity}") for which in ARMS}
    traces = [line(which, *found, *ARMS[which]) for which, found in drawn.items() if found[1]]
    if not traces:
        return None
    if quantity == "loss":
        y = {"title": axis_title(f"loss ({clean(facts.loss, 40)})"), "rangemode": "tozero"}
        return figure(
            traces, height=300, x={"title": axis_title("epoch")}, y=y, shapes=_turn(curves)
        )
    if facts.test_samples and drawn["test"][1]:
        traces.insert(0, _sampling_band(*drawn["test"], facts.test_samples))
    y = {"title": axis_title("error rate"), "rangemode": "tozero", "tickformat": ".1~%"}
    return figure(traces, height=300, x={"title": axis_title("epoch")}, y=y)


def _sampling_band(
    epochs: Sequence[float], values: Sequence[float], samples: int
) -> dict[str, Any]:
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
    return [
        upright(
            turn.epoch,
            dash="dot",
            color=MUTED,
            label={**text, "font": {"size": 11, "color": MUTED}},
        )
    ]


def layer_bars(layers: Layers) -> Figure:
    """One bar a tensor, first layer on top; only the largest where there are very many."""
    chosen = sorted(
        sorted(range(len(layers.names)), key=lambda k: -abs(layers.values[k]))[:MOST_TENSORS]
    )
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
    y = {
        **named([layers.names[k] for k in chosen]),
        "autorange": "reversed",
        "tickfont": {"size": 12},
    }
    x = {"title": axis_title(clean(layers.title).lower())}
    return figure([trace], height=90 + 22 * len(chosen), x=x, y=y, showlegend=False, margin=BARE)


PLURAL = {"margin": "margins", "loss": "losses"}
Charts = dict[str, list[Chart]]


def of_report(report: Report) -> Charts:
    """The charts of a report by section; a section without data has none."""
    return {
        "gap": _gap(report),
        "curves": _curves(report),
        "bounds": _bounds(report),
        "layers": _layers(report),
        "samples": _spread(report),
        "variance": [] if report.variance is None else variance_charts(report.variance),
    }


def _gap(report: Report) -> list[Chart]:
    if report.gap.value is None:
        return []
    unit = "error rate" if report.facts.rate else "loss"
    train = wording.error(report.facts, report.facts.train_error)
    test = wording.error(report.facts, report.facts.test_error or 0.0)
    return [
        Chart(
            key="gap",
            title="Train, test and the gap between them",
            caption=(
                "The interval covers the uncertainty of the test data; the training error of a "
                "given model is known."
            ),
            alt=f"Bar chart: {unit} {train} on training data, {test} on test data.",
            figure=gap_bar(report.facts, report.gap),
            wide=True,
        )
    ]


def _curves(report: Report) -> list[Chart]:
    captions = {
        "loss": ("Loss", "One run, evaluated without dropout and the like after every epoch."),
        "error": (
            "Error",
            "The band is the 95 % interval of the test error, from the number of test samples.",
        )
        if report.facts.test_samples
        else ("Error", "One run."),
    }
    drawn = {name: training_curve(report.curves, name, report.facts) for name in captions}
    return [
        Chart(
            key=f"curve-{name}",
            title=f"{captions[name][0]} over training",
            caption=captions[name][1],
            alt=f"Line chart of train and test {name} over {len(report.curves)} epochs.",
            figure=figure,
            wide=sum(map(bool, drawn.values())) == 1,
        )
        for name, figure in drawn.items()
        if figure is not None
    ]


def _bounds(report: Report) -> list[Chart]:
    figure = bounds_chart(report.bounds)
    if figure is None:
        return []
    values = ", ".join(
        f"{card.title} {wording.number(card.result.value)}"
        for card in report.bounds
        if card.defined
    )
    caption = (
        "Beyond 100 % a bound says nothing. Gray and hatched: vacuous, or an assumption is broken."
    )
    return [
        Chart(
            key="bounds",
            title="Bounds",
            caption=caption,
            alt=f"Bar chart: {values}.",
            figure=figure,
            wide=True,
        )
    ]


def _layers(report: Report) -> list[Chart]:
    return [
        Chart(
            key=f"layers-{k}",
            title=layers.title,
            caption=f"The {MOST_TENSORS} largest of {len(layers.names)} tensors."
            if len(layers.names) > MOST_TENSORS
            else f"All {len(layers.names)} tensors, in the model's order.",
            alt=f"Bar chart of {layers.title.lower()} for every tensor of the model.",
            figure=layer_bars(layers),
        )
        for k, layers in enumerate(report.layers)
    ]


def _spread(report: Report) -> list[Chart]:
    drawn: list[Chart] = []
    if report.spread is not None:
        caption = {
            "margin": "Logit of the true class minus the largest other: left of zero the answer is wrong. "
            "The outermost bins hold what lies beyond.",
            "loss": "What lies beyond the end is counted in the last bin.",
        }[report.spread.quantity]
        drawn.append(
            Chart(
                key="spread",
                title=f"{PLURAL[report.spread.quantity].capitalize()} of all samples",
                caption=caption,
                alt=f"Histogram of the {PLURAL[report.spread.quantity]} of train and test samples.",
                figure=spread.spread_lines(report.spread),
                wide=True,
            )
        )
    return drawn + _classes(report)


def _classes(report: Report) -> list[Chart]:
    classes = report.classes
    if classes is None:
        return []
    many = len(classes.names) > spread.MOST_CLASSES
    errors = Chart(
        key="classes",
        title=f"Error by class ({classes.which} data)",
        caption=f"The {spread.MOST_CLASSES} worst classes."
        if many
        else "Share of wrong answers among a class's samples.",
        alt="Bar chart of the error rate of every class, with intervals.",
        figure=spread.class_errors(classes),
        wide=not classes.confusion,
    )
    matrix = spread.confusion(classes)
    if matrix is None:
        return [errors]
    caption = "Number of mistakes; right answers are left out."
    alt = "Heat map of true against predicted class."
    return [
        errors,
        Chart(
            key="confusion", title="What is taken for what", caption=caption, alt=alt, figure=matrix
        ),
    ]
