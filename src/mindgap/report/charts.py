"""Which figures stand in which section of a page, with their captions and the words for those who cannot see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mindgap.report import figures, spread_figures, wording
from mindgap.report.bounds_figure import bounds_chart
from mindgap.report.chart import Chart
from mindgap.report.variance_charts import variance_charts

if TYPE_CHECKING:
    from mindgap.report.build import Report

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
            caption="The interval covers the uncertainty of the test data; the train error of a given model is known.",
            alt=f"Bar chart: {unit} {train} on train data, {test} on test data.",
            figure=figures.gap_bar(report.facts, report.gap),
            wide=True,
        )
    ]


def _curves(report: Report) -> list[Chart]:
    captions = {
        "loss": ("Loss", "One run, evaluated without dropout and the like after every epoch."),
        "error": ("Error", "The band is the 95 % interval of the test error, from the number of test samples.")
        if report.facts.test_samples
        else ("Error", "One run."),
    }
    drawn = {name: figures.training_curve(report.curves, name, report.facts) for name in captions}
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
    values = ", ".join(f"{card.title} {wording.number(card.result.value)}" for card in report.bounds if card.defined)
    caption = "Beyond 100 % a bound says nothing. Grey and hatched: vacuous, or an assumption is broken."
    return [Chart(key="bounds", title="Bounds", caption=caption, alt=f"Bar chart: {values}.", figure=figure, wide=True)]


def _layers(report: Report) -> list[Chart]:
    return [
        Chart(
            key=f"layers-{k}",
            title=layers.title,
            caption=f"The {figures.MOST_TENSORS} largest of {len(layers.names)} tensors."
            if len(layers.names) > figures.MOST_TENSORS
            else f"All {len(layers.names)} tensors, in the model's order.",
            alt=f"Bar chart of {layers.title.lower()} for every tensor of the model.",
            figure=figures.layer_bars(layers),
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
                figure=spread_figures.spread_lines(report.spread),
                wide=True,
            )
        )
    return drawn + _classes(report)


def _classes(report: Report) -> list[Chart]:
    classes = report.classes
    if classes is None:
        return []
    many = len(classes.names) > spread_figures.MOST_CLASSES
    errors = Chart(
        key="classes",
        title=f"Error by class ({classes.which} data)",
        caption=f"The {spread_figures.MOST_CLASSES} worst classes."
        if many
        else "Share of wrong answers among a class's samples.",
        alt="Bar chart of the error rate of every class, with intervals.",
        figure=spread_figures.class_errors(classes),
        wide=not classes.confusion,
    )
    matrix = spread_figures.confusion(classes)
    if matrix is None:
        return [errors]
    caption = "Number of mistakes; right answers are left out."
    alt = "Heat map of true against predicted class."
    return [errors, Chart(key="confusion", title="What is taken for what", caption=caption, alt=alt, figure=matrix)]
