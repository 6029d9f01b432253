"""The training curves: loss and error over the epochs."""

import dataclasses
from collections.abc import Mapping, Sequence

from mindgap.core import Line, Mark, Series, proportion_interval
from mindgap.report.parts import Facts
from mindgap.report.verdict.facts import series, turning_point

Curves = Sequence[Mapping[str, float]]
ARMS = ("train", "validation", "test")


def training_charts(curves: Curves, facts: Facts) -> tuple[Line, ...]:
    """Loss and error over the epochs; none of what was not recorded."""
    loss = Line(
        title="Loss over training",
        caption="One run, evaluated in evaluation mode after every epoch.",
        x_label="epoch",
        y_label=f"loss ({facts.loss})",
        series=_arms(curves, "loss"),
        marks=_turn(curves),
        from_zero=True,
    )
    error = Line(
        title="Error over training",
        caption="The band is the 95 % interval of the test error, from the number of test samples."
        if facts.test_samples
        else "One run.",
        x_label="epoch",
        y_label="error rate",
        percent=True,
        series=_arms(curves, "error", facts.test_samples),
    )
    found = [chart for chart in (loss, error) if chart.series]
    return tuple(dataclasses.replace(chart, wide=len(found) == 1) for chart in found)


def _arms(curves: Curves, quantity: str, samples: int = 0) -> list[Series]:
    found = [(which, *series(curves, f"{which}_{quantity}")) for which in ARMS]
    return [
        _curve(which, epochs, values, samples if which == "test" else 0)
        for which, epochs, values in found
        if values
    ]


def _curve(name: str, epochs: list[float], values: list[float], samples: int) -> Series:
    ends = [proportion_interval(round(value * samples), samples) for value in values if samples]
    return Series(
        name=name,
        x=epochs,
        y=values,
        low=[end.low for end in ends],
        high=[end.high for end in ends],
        mode="lines",
    )


def _turn(curves: Curves) -> list[Mark]:
    turn = turning_point(curves)
    return [] if turn is None else [Mark(name=f"lowest {turn.which} loss", x=turn.epoch)]
