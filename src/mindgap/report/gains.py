"""Words of gains: errors, their differences, and the ends of intervals."""

from mindgap.core import Interval
from mindgap.core.chart import numbers
from mindgap.report import wording


def amount(value: float, rate: bool) -> str:
    """Return an error as this task counts it.

    >>> amount(0.031, True).replace(wording.SPACE, " "), amount(0.113, False)
    ('3.1 %', '0.113')
    """
    return wording.percent(value) if rate else wording.number(value, 3)


def change(value: float, rate: bool) -> str:
    """Return a difference of errors with its sign, in percentage points or loss."""
    sign = "+" if value > 0 else ""
    if not rate:
        return f"{sign}{wording.number(value, 3)}"
    return f"{sign}{numbers.hundredfold(value, 2)}"


def ends(interval: Interval, rate: bool) -> str:
    """Return both ends of an interval of differences, never narrower than it is.

    >>> ends(Interval(low=0.0031, high=0.0109), True), ends(Interval(low=-0.02, high=0.1), False)
    ('0.31 to 1.09', '−0.02 to 0.1')
    """
    if not rate:
        return f"{numbers.rounded_down(interval.low, 3)} to {numbers.rounded_up(interval.high, 3)}"
    digits = 2
    low = numbers.round_down(interval.low, digits + 2)
    high = numbers.round_up(interval.high, digits + 2)
    return f"{numbers.hundredfold(low, digits)} to {numbers.hundredfold(high, digits)}"
