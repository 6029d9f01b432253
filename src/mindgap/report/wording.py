"""Numbers and names as people read them."""

import math
import re
from typing import Any

from mindgap.core import Interval, Result
from mindgap.report.parts import Facts

ABBREVIATIONS = {"kl", "pac", "mlp", "sam", "svd", "vc", "ntk", "pca", "sgd", "swa", "iou", "vib"}
SPACE = "\u00a0"  # a number and its unit stay on one line
TOGETHER = re.compile(r"(?<=[\d\]]) (?=%)|(?<=,) (?=[^\[\]]*\])")


def title(name: str) -> str:
    """A command-line name as a heading.

    >>> title("distance-from-initialization"), title("kl-inverse"), title("pacgen-null")
    ('Distance from initialization', 'KL inverse', 'pacGen null')
    """
    if name.startswith("pacgen"):  # as its authors write it
        return " ".join(["pacGen", *name.split("-")[1:]])
    words = [
        word.upper() if word in ABBREVIATIONS else word
        for word in name.replace("_", "-").split("-")
    ]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def number(value: float | None, digits: int = 4) -> str:
    """Four digits that matter, or fewer.

    >>> number(4810.0), number(0.03125), number(1.5e12), number(None), number(math.inf)
    ('4,810', '0.03125', '1.5e+12', '—', '∞')
    """
    if value is None or math.isnan(value):
        return "—"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.{digits}g}"
    return text.replace("-", "−", 1) if value < 0 else text


def percent(value: float) -> str:
    """A share with two digits that matter.

    >>> [
    ...     percent(share).replace(SPACE, " ")
    ...     for share in (0.0412, 0.0, 1.0, 0.99961, 0.00012, -0.031)
    ... ]
    ['4.1 %', '0 %', '100 %', '99.961 %', '0.012 %', '−3.1 %']
    """
    return f"{_hundredfold(value, _decimals(value))}{SPACE}%"


def _decimals(value: float) -> int:
    share = abs(100 * value)
    near = min(share, 100 - share) if share <= 100 else share  # 99.96 % is about the 0.04 %
    return 0 if near < 1e-9 or near >= 10 else 1 - math.floor(math.log10(near))


def _hundredfold(value: float, decimals: int) -> str:
    text = f"{abs(100 * value):.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return ("−" if value < 0 and text != "0" else "") + text


def error(facts: Facts, value: float) -> str:
    """An error as this task counts it: percent of wrong answers, or the loss."""
    return percent(value) if facts.rate else number(value)


def gap(facts: Facts, value: float, unit: str = "percentage points") -> str:
    """A difference of errors: percentage points, or loss."""
    return f"{_hundredfold(value, _decimals(value))}{SPACE}{unit}" if facts.rate else number(value)


def ends(facts: Facts, interval: Interval, joint: str = "and") -> str:
    """The two ends of an interval of errors, both as exact as the larger needs."""
    decimals = max(_decimals(max(abs(interval.low), abs(interval.high))), 1)
    low, high = (
        _hundredfold(e, decimals) if facts.rate else number(e)
        for e in (interval.low, interval.high)
    )
    return f"{low} {joint} {high}"


def bounded(result: Result, facts: Facts, value: float | None) -> str:
    """A part of a bound: percent where the worst loss is one, the loss otherwise."""
    if value is None or value >= 10 or not facts.rate or result.terms.get("ceiling") != 1:
        return number(value)
    return percent(value)


def level(interval: Interval | None) -> str:
    """The level of an interval as percent."""
    return percent(interval.level if interval else 0.95)


def span(interval: Interval | None) -> str:
    """An interval in brackets, or nothing."""
    return "" if interval is None else f"{number(interval.low)} … {number(interval.high)}"


def seconds(value: float) -> str:
    """A duration.

    >>> seconds(0.0004), seconds(0.25), seconds(3.2), seconds(125)
    ('< 1 ms', '250 ms', '3.2 s', '2 min 5 s')
    """
    if value < 0.001:
        return "< 1 ms"
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60)} s"


def count(value: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "sample"), count(1297, "sample")
    ('1 sample', '1,297 samples')
    """
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def cell(value: Any) -> str:
    """Whatever stands in a table.

    >>> cell(None), cell(0.5), cell(12000), cell([1, 2]), cell(True)
    ('—', '0.5', '12,000', '1, 2', 'yes')
    >>> cell("+0.2 [0.1, 0.3], 4 %")  # what belongs together stays on one line
    '+0.2 [0.1,\\xa00.3], 4\\xa0%'
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
    return TOGETHER.sub(SPACE, str(value))
