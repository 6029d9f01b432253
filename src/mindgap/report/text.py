"""The report as plain text for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mindgap.report import wording
from mindgap.report.parts import Card
from mindgap.report.sections.label_variance.summary import Heavy, Variance

if TYPE_CHECKING:
    from mindgap.report.report import Report

WIDEST, NARROWEST = 100, 50


def text(report: Report, width: int | None = None) -> str:
    """Verdict first, then tables of measures and bounds, then what could not be measured."""
    columns = shutil.get_terminal_size((WIDEST, 24)).columns if width is None else width
    room = min(max(columns, NARROWEST), WIDEST)
    blocks = [
        [report.title, "═" * min(len(report.title), room)],
        verdict(report, room),
        table(MEASURE_HEAD, [measure_row(card) for card in report.measures if card.defined], room),
        table(BOUND_HEAD, [bound_row(card) for card in tightest_first(report.bounds)], room),
        variance(report.variance, room),
        undefined(missing(report), room),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def verdict(report: Report, room: int) -> list[str]:
    """The headline, the sentences and the suggestions."""
    verdict = report.verdict
    lines = textwrap.wrap(f"{verdict.label.upper()}. {verdict.headline}", room)
    for sentence in verdict.sentences:
        lines += _item(sentence, "·", room)
    if verdict.advice:
        lines += ["", "To try next, and to verify with the same seeds:"]
    for advice in verdict.advice:
        lines += _item(
            f"{advice.remedy}: {advice.text}" if advice.remedy else advice.text, "→", room
        )
    return lines


def _item(sentence: str, mark: str, room: int) -> list[str]:
    return textwrap.wrap(sentence, room, initial_indent=f"  {mark} ", subsequent_indent="    ")


MEASURE_HEAD = ("measure", "value", "interval", "better", "status")
BOUND_HEAD = ("bound", "at most", "seen", "price", "verdict")


def measure_row(card: Card) -> tuple[str, ...]:
    """One measure as cells."""
    result = card.result
    better = "" if card.direction == "none" else card.direction
    return (
        result.name,
        wording.number(result.value),
        wording.span(result.interval),
        better,
        result.status,
    )


def bound_row(card: Card) -> tuple[str, ...]:
    """One bound as cells."""
    terms = card.result.terms
    parts = [wording.number(terms.get(name)) for name in ("empirical", "complexity")]
    return card.result.name, wording.number(card.result.value), *parts, bound_verdict(card)


def tightest_first(cards: Sequence[Card]) -> list[Card]:
    """The bounds that have a value, smallest first."""
    return sorted((card for card in cards if card.defined), key=lambda card: float(card.result))


def bound_verdict(card: Card) -> str:
    """Whether a bound holds and says something."""
    if card.result.valid is False:
        return f"invalid: {card.result.reason}"
    return "vacuous" if card.result.vacuous else "holds"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[str]:
    """Columns as wide as needed; the last is cut where the room ends."""
    if not rows:
        return []
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in [head, *rows]]
    rule = "─" * min(max(map(len, lines)), room)
    return [_cut(lines[0], room), rule, *(_cut(line, room) for line in lines[1:])]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = [
        cell.ljust(width) if k in (0, len(row) - 1) else cell.rjust(width)
        for k, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return [first, *rest]


def _cut(line: str, room: int) -> str:
    return line if len(line) <= room else line[: room - 1] + "…"


def variance(found: Variance | None, room: int) -> list[str]:
    """Where labels vary: a line of words and the heaviest samples."""
    if found is None or not found.defined:
        return []
    lines = textwrap.wrap(variance_words(found), room)
    return [
        *lines,
        "",
        *table(HEAVY_HEAD, [heavy_row(heavy) for heavy in found.heaviest[:FEW]], room),
    ]


HEAVY_HEAD = ("sample", "weight", "label", "agree", "labels around it")
FEW = 5  # heavy samples that text tells of; a page shows them all


def heavy_row(heavy: Heavy) -> tuple[str, ...]:
    """One heavy sample as cells."""
    agree = "" if heavy.agreement is None else wording.percent(heavy.agreement)
    return f"no. {heavy.index}", wording.number(heavy.weight, 3), heavy.target, agree, heavy.around


def variance_words(found: Variance) -> str:
    """How the weights came about, and how many labels are suspected."""
    drawn = "" if found.samples == found.of else f" of {found.of:,}, drawn at random,"
    words = (
        f"Where labels vary: {wording.count(found.samples, 'training sample')}{drawn} weighed by "
        f"the labels of {found.k} "
        f"neighbors in {found.features}; mean weight {wording.number(found.mean, 3)}, largest "
        f"{wording.number(found.largest, 3)}. High local variance is also the mark of a wrong "
        "label."
    )
    if not found.suspects:
        return words
    if found.vague:
        return f"{words} Suspects: {found.suspects:,}, so many that the neighbors say little here."
    marked = sorted({heavy.index for heavy in (*found.heaviest, *found.doubtful) if heavy.suspect})
    listed = ", ".join(map(str, marked)) + (" …" if len(marked) < found.suspects else "")
    return f"{words} Suspects: {found.suspects:,}" + (f" (no. {listed})." if marked else ".")


def missing(report: Report) -> list[tuple[str, str]]:
    """What has no value here, by name, with the reason."""
    cards = [(card.result.name, card.result.reason) for card in report.cards if not card.defined]
    vague = report.variance.reason if report.variance else ""
    return [*cards, *([("where labels vary", vague)] if vague else [])]


def undefined(found: Sequence[tuple[str, str]], room: int) -> list[str]:
    """What has no value here, and why."""
    lines = [line for name, reason in found for line in _item(f"{name}: {reason}", "·", room)]
    return ["Not measured here:", *lines] if lines else []
