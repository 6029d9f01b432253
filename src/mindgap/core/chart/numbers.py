"""Numbers as people read them."""

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

SPACE = "\u00a0"  # a number and its unit stay on one line


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
    """Return a share with two digits that matter.

    >>> [
    ...     percent(share).replace(SPACE, " ")
    ...     for share in (0.0412, 0.0, 1.0, 0.99961, 0.00012, -0.031)
    ... ]
    ['4.1 %', '0 %', '100 %', '99.961 %', '0.012 %', '−3.1 %']
    """
    return f"{hundredfold(value, decimals(value))}{SPACE}%"


def round_up(value: float, places: int) -> float:
    """Round up to so many decimal places, as every upper bound is shown.

    A number that is exact but for the last bits of floating point stays as it is.

    >>> round_up(0.1319, 2), round_up(0.57 * 100, 0), round_up(-0.125, 2)
    (0.14, 57.0, -0.12)
    """
    if not math.isfinite(value):
        return value
    scaled = value * 10.0**places
    near = round(scaled)
    close = abs(scaled - near) <= 1e-9 * max(1.0, abs(scaled))
    return (near if close else math.ceil(scaled)) / 10.0**places


def round_down(value: float, places: int) -> float:
    """Round down to so many decimal places, as every lower bound is shown.

    >>> round_down(0.1319, 2), round_down(-0.125, 2)
    (0.13, -0.13)
    """
    return -round_up(-value, places) + 0.0  # not -0.0


def rounded_up(value: float | None, digits: int = 4) -> str:
    """Write a number as :func:`number` does, but never below its value.

    >>> rounded_up(0.12341), rounded_up(0.5), rounded_up(2345.2), rounded_up(None)
    ('0.1235', '0.5', '2,346', '—')
    """
    return number(value if value is None else upper(value, digits), digits)


def rounded_down(value: float | None, digits: int = 4) -> str:
    """Write a number as :func:`number` does, but never above its value.

    >>> rounded_down(0.12349), rounded_down(-0.5), rounded_down(2345.8)
    ('0.1234', '−0.5', '2,345')
    """
    return number(value if value is None else -upper(-value, digits), digits)


def upper(value: float, digits: int = 4) -> float:
    """Round up to so many digits that matter, for a bound in a table.

    >>> upper(0.123412), upper(0.0), upper(-0.123412)
    (0.1235, 0.0, -0.1234)
    """
    if not math.isfinite(value) or value == 0:
        return value
    return round_up(value, _places(value, digits))


def _places(value: float, digits: int) -> int:
    """Decimal places at which a number has so many digits, as :func:`number` writes it."""
    return 0 if 1000 <= abs(value) < 1e7 else digits - 1 - math.floor(math.log10(abs(value)))


def at_most(share: float, places: int | None = None) -> str:
    """Write a share that an upper bound promises, in percent: rounded up, never in its favor.

    Args:
        share: The bound.
        places: Digits after the point; None: as many as :func:`percent` has, and at least one.

    >>> [at_most(share).replace(SPACE, " ") for share in (0.1319, 0.0, 0.57, 0.000311)]
    ['13.2 %', '0 %', '57 %', '0.032 %']
    >>> at_most(0.131901, 2).replace(SPACE, " ")
    '13.2 %'
    """
    if not math.isfinite(share):
        return f"{number(share)}{SPACE}%"
    digits = max(decimals(share), 1 if share else 0) if places is None else places
    return f"{hundredfold(round_up(share, digits + 2), digits)}{SPACE}%"


def at_least(share: float, places: int | None = None) -> str:
    """Write a share that a lower bound promises, in percent: rounded down.

    Args:
        share: The bound.
        places: Digits after the point; None: as many as :func:`percent` has, and at least one.

    >>> at_least(0.1319).replace(SPACE, " ")
    '13.1 %'
    """
    if not math.isfinite(share):
        return f"{number(share)}{SPACE}%"
    digits = max(decimals(share), 1 if share else 0) if places is None else places
    return f"{hundredfold(round_down(share, digits + 2), digits)}{SPACE}%"


SHOWN = 1e-4  # the relative precision with which bounds are shown


def shown_below(value: float, limit: float) -> bool:
    """Tell whether a bound is below a limit as both are shown, to four digits.

    >>> shown_below(0.3, 0.5), shown_below(0.49999, 0.5), shown_below(0.5, 0.5)
    (True, False, False)
    """
    return value < limit * (1 - SHOWN)


def decimals(value: float) -> int:
    """Digits after the point at which a share, in percent, has two that matter."""
    share = abs(100 * value)
    near = min(share, 100 - share) if share <= 100 else share  # 99.96 % is about the 0.04 %
    return 0 if near < 1e-9 or near >= 10 else 1 - math.floor(math.log10(near))


def hundredfold(value: float, digits: int) -> str:
    """Return a share in percent, without the sign and without trailing zeros."""
    text = f"{abs(100 * value):.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return ("−" if value < 0 and text != "0" else "") + text


def known(value: Any) -> TypeGuard[float]:
    """Tell whether a value is a number that can be drawn."""
    return isinstance(value, int | float) and math.isfinite(value)


def finite(rows: Sequence[Sequence[Any]]) -> list[float]:
    """Return all finite numbers of a map.

    >>> finite([[1.0, None], [float("nan"), 2.0]])
    [1.0, 2.0]
    """
    return [value for row in rows for value in row if known(value)]


def short(value: Any, share: bool = False) -> str:
    """Return a number with three digits, a share as percent, or a name as it is.

    >>> short(0.12345), short(12345.0), short("adam"), short(None)
    ('0.123', '12,345', 'adam', '—')
    """
    if isinstance(value, str):
        return value
    return percent(value).replace(SPACE, " ") if share and known(value) else number(value, 3)


def spread(count: int, most: int) -> list[int]:
    """Return places spread evenly, both ends among them.

    >>> spread(3, 5), spread(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]
