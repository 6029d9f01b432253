"""The chart of the bounds: empirical and complexity term, up to where a bound says nothing."""

import math
from collections.abc import Sequence

from mindgap.core import Bar, Mark, Series
from mindgap.report import wording
from mindgap.report.parts import Card

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
    words = wording.at_most(end) if end < 10 else wording.number(float(card.result))
    if card.guarantees:
        return words
    return f"{words} · {'invalid' if card.result.valid is False else 'vacuous'}"
