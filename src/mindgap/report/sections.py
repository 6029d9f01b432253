"""Charts of the whole report: the training curves, and all bounds next to each other."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from mindgap.core import Bar, Line, Mark, Series, proportion_interval
from mindgap.ops.evidence.curves import series, turning_point
from mindgap.report import wording
from mindgap.report.parts import Card, Facts

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


WIDEST = 1.3  # how far beyond the ceiling the axis goes; a vacuous bound may be a million
TERMS = {"empirical": "error on the data", "complexity": "complexity term"}


def bounds_charts(cards: Sequence[Card]) -> tuple[Bar, ...]:
    """Stack the terms of every bound, the tightest that holds first; others are gray."""
    drawn = [
        card
        for card in cards
        if card.defined and 0 < card.result.terms.get("ceiling", 0) < math.inf
    ]
    if not drawn:
        return ()
    drawn.sort(key=lambda card: (not card.guarantees, share(card)))
    rates = all(card.result.terms["ceiling"] == 1 for card in drawn)
    names = [card.title for card in drawn]
    return (
        Bar(
            title="Bounds and what they are made of",
            caption=(
                "Beyond 100 % a bound says nothing. Gray and hatched: vacuous, or an assumption "
                "does not hold."
            ),
            y_label=f"bound on the {'error rate' if rates else 'loss, as a share of the worst'}",
            percent=True,
            series=[
                Series(name=name, x=names, y=[_part(card, term) for card in drawn])
                for term, name in TERMS.items()
            ],
            stacked=True,
            horizontal=True,
            muted=[card.title for card in drawn if not card.guarantees],
            notes=[_note(card) for card in drawn],
            marks=[Mark(y=1.0)],
            top=WIDEST,
        ),
    )


def share(card: Card) -> float:
    """Return the bound in units of its ceiling."""
    return float(card.result) / card.result.terms["ceiling"]


def _part(card: Card, term: str) -> float:
    return card.result.terms.get(term, 0.0) / card.result.terms["ceiling"]


def _note(card: Card) -> str:
    end = share(card)
    words = wording.at_most(end) if end < 10 else wording.rounded_up(float(card.result))
    if card.guarantees:
        return words
    return f"{words} · {'invalid' if card.result.valid is False else 'vacuous'}"
