"""Numbers and names as people read them."""

import re
from typing import Any

from mindgap.core import Interval, Result
from mindgap.core.chart.numbers import (
    SPACE as SPACE,
    at_least as at_least,
    at_most as at_most,
    decimals,
    hundredfold,
    known,
    number as number,
    percent as percent,
    round_down,
    round_up,
    rounded_down,
    rounded_up as rounded_up,
)
from mindgap.report.parts import Facts

TINY = "1e-300"  # what rounds to zero is smaller than 1e-307, and is multiplied by a few tests
MINUS = re.compile(r"(?<![\w-])-(?=[\d.])")  # of a number, no hyphen
TOGETHER = re.compile(r"(?<=[\d\]]) (?=%)|(?<=,) (?=[^\[\]]*\])")


# Abbreviations, and names that are capitalized inside a sentence.
SPELLED = re.compile(
    r"\b[A-Za-z]+[A-Z][A-Za-z]*\b|(?<=[a-z,-] )[A-Z][a-z]+\b|(?<=[-–])[A-Z][a-z]+\b"
)

# Names in names, which few texts repeat.
PEOPLE = {
    word.lower(): word for word in ("Bayes", "Bouldin", "Frobenius", "PAC", "Panchenko", "Rao")
}


def title(name: str, text: str = "") -> str:
    """Return a command-line name as a heading, with words spelled as a text spells them.

    Args:
        name: The name, with hyphens or underscores.
        text: Where to see how names and abbreviations are written.

    >>> (
    ...     title("distance-from-initialization"),
    ...     title("kl-inverse", "The bound by the KL divergence."),
    ... )
    ('Distance from initialization', 'KL inverse')
    >>> title("pacgen-null", "The pacGen metric.")
    'pacGen null'
    >>> title("fisher-rao-norm")
    'Fisher Rao norm'
    """
    spelled = PEOPLE | {word.lower(): word for word in SPELLED.findall(text)}
    first, *rest = name.replace("_", "-").split("-")
    head = spelled.get(first) or first[:1].upper() + first[1:]
    return " ".join([head, *(spelled.get(word, word) for word in rest)])


def error(facts: Facts, value: float | None) -> str:
    """Return an error as this task counts it: percent of wrong answers, or the loss."""
    return percent(value) if facts.rate and known(value) else number(value)


def gap(facts: Facts, value: float | None, unit: str = "percentage points") -> str:
    """Return a difference of errors: percentage points, or loss."""
    if not facts.rate or not known(value):
        return number(value)
    return f"{hundredfold(value, decimals(value))}{SPACE}{unit}"


def ends(facts: Facts, interval: Interval, joint: str = "and") -> str:
    """Return the two ends of an interval of errors, both as exact as the larger needs.

    The low end is rounded down and the high end up, so that the interval never shrinks.
    """
    if not facts.rate:
        return f"{rounded_down(interval.low)} {joint} {rounded_up(interval.high)}"
    digits = max(decimals(max(abs(interval.low), abs(interval.high))), 1)
    low, high = round_down(interval.low, digits + 2), round_up(interval.high, digits + 2)
    return f"{hundredfold(low, digits)} {joint} {hundredfold(high, digits)}"


def bounded(result: Result, facts: Facts, value: float | None) -> str:
    """Return a part of a bound: percent where the worst loss is one, the loss otherwise."""
    if value is None or value >= 10 or not facts.rate or result.terms.get("ceiling") != 1:
        return rounded_up(value)
    return at_most(value)


def level(interval: Interval | None) -> str:
    """Return the level of an interval as percent."""
    return percent(interval.level if interval else 0.95)


def span(interval: Interval | None) -> str:
    """Return both ends of an interval, never narrower than it is, or nothing."""
    if interval is None:
        return ""
    return f"{rounded_down(interval.low)} … {rounded_up(interval.high)}"


def seconds(value: float) -> str:
    """Return a duration.

    >>> seconds(0.0004), seconds(0.25), seconds(3.2), seconds(125)
    ('< 1 ms', '250 ms', '3.2 s', '2 min 5 s')
    """
    if value < 0.001:
        return "< 1 ms"
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60)} s"


def count(value: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "sample"), count(1297, "sample")
    ('1 sample', '1,297 samples')
    """
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def p_value(value: float) -> str:
    """Return a p-value with the sign before it: none is zero, but some are rounded to it.

    >>> p_value(1e-9), p_value(0.0)
    ('= 1e-09', '< 1e-300')
    """
    return f"= {number(value, 2)}" if value else f"< {TINY}"


def cell(value: Any) -> str:
    """Return a value as a cell of a table.

    >>> cell(None), cell(0.5), cell(12000), cell([1, 2]), cell(True)
    ('—', '0.5', '12,000', '1, 2', 'yes')
    >>> cell("+0.2 [0.1, 0.3], 4 %")  # what belongs together stays on one line
    '+0.2 [0.1,\\xa00.3], 4\\xa0%'
    >>> cell("[-0.1, 1e-05]"), cell("2026-11-18"), cell("784-10")
    ('[−0.1,\\xa01e-05]', '2026-11-18', '784-10')
    """
    if value is None or isinstance(value, float):
        return number(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={cell(item)}" for key, item in value.items())
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    return MINUS.sub("−", TOGETHER.sub(SPACE, str(value)))


def amount(value: float, rate: bool) -> str:
    """Return an error as this task counts it.

    >>> amount(0.031, True).replace(SPACE, " "), amount(0.113, False)
    ('3.1 %', '0.113')
    """
    return percent(value) if rate else number(value, 3)


def change(value: float, rate: bool) -> str:
    """Return a difference of errors with its sign, in percentage points or loss."""
    sign = "+" if value > 0 else ""
    if not rate:
        return f"{sign}{number(value, 3)}"
    return f"{sign}{hundredfold(value, 2)}"


def both_ends(interval: Interval, rate: bool) -> str:
    """Return both ends of an interval of differences, never narrower than it is.

    >>> (
    ...     both_ends(Interval(low=0.0031, high=0.0109), True),
    ...     both_ends(Interval(low=-0.02, high=0.1), False),
    ... )
    ('0.31 to 1.09', '−0.02 to 0.1')
    """
    if not rate:
        return f"{rounded_down(interval.low, 3)} to {rounded_up(interval.high, 3)}"
    digits = 2
    low = round_down(interval.low, digits + 2)
    high = round_up(interval.high, digits + 2)
    return f"{hundredfold(low, digits)} to {hundredfold(high, digits)}"
