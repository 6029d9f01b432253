"""The report as plain text for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mindgap.core import Advice, Chart, Gallery
from mindgap.report import wording
from mindgap.report.parts import Card, Verdict, by_topic
from mindgap.report.verdict import findings
from mindgap.report.verdict.findings import Told

if TYPE_CHECKING:
    from mindgap.report.report import Report

WIDEST, NARROWEST = 100, 50


def text(report: Report, width: int | None = None) -> str:
    """Write the verdict, what was found, the tables, the samples, and what was not measured."""
    room = room_of(width)
    blocks = [
        [report.title, "═" * min(len(report.title), room)],
        verdict(report.verdict, room),
        *_found(report, room),
        _wrapped(findings.summary(report.checked), room),
        _measures(report, room),
        table(BOUND_HEAD, [bound_row(card) for card in tightest_first(report.bounds)], room),
        *(str(chart).splitlines() for chart in _terminal_charts(report)),
        *(gallery(title, chart, room) for title, chart in galleries(report)),
        listed("Read with care:", caveats(report), room),
        listed("Not measured here:", missing(report), room),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _measures(report: Report, room: int) -> list[str]:
    """Return one table with a line above the measures of each topic."""
    groups = by_topic([card for card in report.measures if card.defined])
    cards = [card for _, group in groups for card in group]
    lines = table(measure_head(cards), measure_rows(cards), room)
    if len(groups) < 2:
        return lines
    found, rest = lines[:2], iter(lines[2:])
    for topic, group in groups:
        found += [f"{topic}:", *(next(rest) for _ in group)]
    return found


def room_of(width: int | None) -> int:
    """Return how many characters a line may have, in the terminal if no width is given."""
    columns = shutil.get_terminal_size((WIDEST, 24)).columns if width is None else width
    return min(max(columns, NARROWEST), WIDEST)


def verdict(told: Verdict, room: int) -> list[str]:
    """Return the headline, the sentences and what to do."""
    lines = _wrapped(f"{told.label.upper()}. {told.headline}", room)
    for sentence in told.sentences:
        lines += _item(sentence, "·", room)
    return [*lines, *_advice(told.advice, room)]


TO_DO = "What to do:"
VERIFY = "Verify a remedy with the same seeds, with and without it."


def _advice(advice: Sequence[Advice], room: int) -> list[str]:
    """Return what to do; lines of code are not broken, so that they can be pasted."""
    lines = ["", TO_DO] if advice else []
    for one in advice:
        lines += _item(f"{one.remedy}: {one.text}" if one.remedy else one.text, "→", room)
        lines += [f"      {line}".rstrip() for line in one.code.splitlines()]
    return lines + (_item(VERIFY, "·", room) if any(one.remedy for one in advice) else [])


def _found(report: Report, room: int) -> list[list[str]]:
    """Return one block per finding; that of the verdict has its words above."""
    told = findings.told(report.findings, report.checked)
    blocks, explained = list[list[str]](), list[str]()
    for one in told:
        if one.explained_by:
            words = f"{one.title}: {one.finding.sentence} Follows from: {one.explained_by}."
            explained += _item(words, "·", room)
            continue
        said = one.finding.name == report.verdict.kind
        blocks += [*([] if said else [_words(one, room)]), _proof(one, room)]
    return [*blocks, ["Explained by the above:", *explained] if explained else []]


def _words(told: Told, room: int) -> list[str]:
    finding = told.finding
    lines = _wrapped(f"{finding.severity.upper()}. {told.title}. {finding.sentence}", room)
    for sentence in finding.sentences:
        lines += _item(sentence, "·", room)
    return [*lines, *_advice(finding.advice, room)]


def _proof(told: Told, room: int) -> list[str]:
    """Return the evidence, how sure it is, and the samples to look at."""
    # A number must not be cut because its name is long.
    lines = table(told.head, [(_cut(row[0], room // 2), *row[1:]) for row in told.evidence], room)
    lines += _item(f"How sure: {told.sureness}.", "·", room)
    if told.rows:
        lines += ["", f"{told.samples}:", *table(told.columns, told.rows, room)]
        lines += [told.rest] if told.rest else []
    charts = [chart for chart in told.finding.charts if chart.terminal]
    return lines + [line for chart in charts for line in str(chart).splitlines()]


def _item(sentence: str, mark: str, room: int) -> list[str]:
    return _wrapped(sentence, room, f"  {mark} ", "    ")


def _wrapped(words: str, room: int, first: str = "", later: str = "") -> list[str]:
    """Break lines, but not inside of words such as over-fitting."""
    return textwrap.wrap(
        words, room, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )


UNTRAINED = "untrained"
MEASURE_HEAD = ("measure", "value", "interval", UNTRAINED, "better", "status")
BOUND_HEAD = ("bound", "at most", "empirical", "complexity", "verdict")


def measure_head(cards: Sequence[Card]) -> tuple[str, ...]:
    """Return the names of the columns; untrained values have one where any is known."""
    return MEASURE_HEAD if compared(cards) else tuple(c for c in MEASURE_HEAD if c != UNTRAINED)


def measure_rows(cards: Sequence[Card], others: Sequence[Card] = ()) -> list[tuple[str, ...]]:
    """Return measures as cells.

    Args:
        cards: The measures.
        others: Measures of the same report, which decide on the columns as well.
    """
    with_untrained = compared([*cards, *others])
    return [_measure_row(card, with_untrained) for card in cards]


def compared(cards: Sequence[Card]) -> bool:
    """Tell whether the value of any measure before training is known."""
    return any(card.untrained is not None for card in cards)


def _measure_row(card: Card, with_untrained: bool) -> tuple[str, ...]:
    result = card.result
    before = "" if card.untrained is None else wording.number(card.untrained)
    return (
        result.name,
        wording.number(result.value),
        wording.span(result.interval),
        *([before] if with_untrained else []),
        "" if card.direction == "none" else card.direction,
        result.status,
    )


def bound_row(card: Card) -> tuple[str, ...]:
    """Return one bound as cells."""
    terms = card.result.terms
    parts = [wording.rounded_up(terms.get(name)) for name in ("empirical", "complexity")]
    return card.result.name, wording.rounded_up(card.result.value), *parts, bound_verdict(card)


def tightest_first(cards: Sequence[Card]) -> list[Card]:
    """Return the bounds that have a value, smallest first."""
    return sorted((card for card in cards if card.defined), key=lambda card: float(card.result))


def bound_verdict(card: Card) -> str:
    """Tell whether a bound holds and says something."""
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


FEW = 5  # samples of a gallery in a terminal; a page shows them all


def _terminal_charts(report: Report) -> list[Chart]:
    """Return the charts that belong into a terminal too, such as the errors of all classes."""
    return [chart for card in report.measures for chart in card.result.charts if chart.terminal]


def galleries(report: Report) -> list[tuple[str, Gallery]]:
    """Return the samples that measures found worth a look, with the measure's title."""
    return [
        (card.title, chart)
        for card in report.measures
        for chart in card.result.charts
        if isinstance(chart, Gallery)
    ]


def gallery(title: str, chart: Gallery, room: int) -> list[str]:
    """Return the first samples of a gallery as a table."""
    left = len(chart.samples) - FEW
    more = [f"… {left} more"] if left > 0 else []
    head, rows = gallery_table(chart)
    return [*_wrapped(f"{title}: {chart.title}", room), *table(head, rows, room), *more]


def gallery_table(chart: Gallery) -> tuple[list[str], list[list[str]]]:
    """Column names and the cells of the first samples; the caption where there is an image."""
    shown = chart.samples[:FEW]
    captions, flags = any(one.caption for one in shown), any(one.flag for one in shown)
    head = [*shown[0].facts, *(["label"] if captions else []), *(["note"] if flags else [])]
    rows = [
        [
            *one.facts.values(),
            *([one.caption] if captions else []),
            *([one.flag] if flags else []),
        ]
        for one in shown
    ]
    return head, rows


def missing(report: Report) -> list[tuple[str, str]]:
    """Return what has no value here, with the reason; what has the same reason is told at once."""
    undefined = [card for card in report.cards if not card.defined]
    return _together((card.result.name, card.result.reason) for card in undefined)


def caveats(report: Report) -> list[tuple[str, str]]:
    """Return what measures leave out, and which did not converge; the same words once."""
    return _together(
        (card.result.name, caveat) for card in report.cards for caveat in card.result.caveats
    )


def _together(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    names: dict[str, list[str]] = {}
    for name, words in pairs:
        names.setdefault(words, []).append(name)
    return [(", ".join(several), words) for words, several in names.items()]


def listed(title: str, found: Sequence[tuple[str, str]], room: int) -> list[str]:
    """Return a title and one item per pair of names and words."""
    lines = [line for name, words in found for line in _item(f"{name}: {words}", "·", room)]
    return [title, *lines] if lines else []
