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
