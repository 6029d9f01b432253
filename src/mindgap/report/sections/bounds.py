"""The figure of the bounds: what was seen plus the price of generalizing, up to the ceiling."""

import math
from collections.abc import Sequence
from typing import Any

from mindgap.report import wording
from mindgap.report.parts import Card
from mindgap.report.style import SKY, TRAIN, Figure, axis_title, figure, named, upright

HATCH = {"size": 7, "solidity": 0.3}
WIDEST = 1.3  # how far beyond the ceiling the axis goes; a vacuous bound may be a million


def bounds_chart(cards: Sequence[Card]) -> Figure | None:
    """Stacked bars, the tightest bound that holds on top; those broken or vacuous are gray and hatched."""
    drawn = [
        card
        for card in cards
        if card.defined and 0 < card.result.terms.get("ceiling", 0) < math.inf
    ]
    if not drawn:
        return None
    drawn.sort(key=lambda card: (not card.guarantees, share(card)))
    unit = (
        "error rate"
        if all(card.result.terms["ceiling"] == 1 for card in drawn)
        else "loss, as a share of the worst"
    )
    x = {"title": axis_title(f"bound on the {unit}"), "tickformat": ".0%"}
    return figure(
        [
            _part(drawn, "empirical", "seen on the data", TRAIN, "#9aa3b0"),
            _part(drawn, "complexity", "price of generalizing", SKY, "#d5dae1"),
        ],
        height=110 + 38 * len(drawn),
        x={**x, "range": [0, WIDEST]},
        y={**named([card.title for card in drawn]), "autorange": "reversed"},
        barmode="stack",
        shapes=[upright(1)],
        annotations=[_note(place, card) for place, card in enumerate(drawn)],
    )


def share(card: Card) -> float:
    """The bound in units of its ceiling."""
    return float(card.result) / card.result.terms["ceiling"]


def _part(cards: Sequence[Card], part: str, name: str, color: str, gray: str) -> dict[str, Any]:
    colors = [color if card.guarantees else gray for card in cards]
    shapes = ["" if card.guarantees else "/" for card in cards]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(range(len(cards))),
        "x": [card.result.terms.get(part, 0.0) / card.result.terms["ceiling"] for card in cards],
        "marker": {"color": colors, "pattern": {"shape": shapes, **HATCH}},
        "width": 0.6,
        "hovertemplate": f"{name}: %{{x:.2%}}<extra></extra>",
    }


def _note(place: int, card: Card) -> dict[str, Any]:
    end = share(card)
    words = wording.percent(end) if end < 10 else wording.number(float(card.result))
    flag = "" if card.guarantees else (" · invalid" if card.result.valid is False else " · vacuous")
    beside = {"x": end, "xanchor": "left", "xshift": 6}
    within = {"x": WIDEST, "xanchor": "right", "xshift": -6, "bgcolor": "rgba(255,255,255,0.85)"}
    spot = beside if end < 0.85 else within
    return {"y": place, "text": words + flag, "showarrow": False, "font": {"size": 12}, **spot}
