"""Checks of arguments. Every error says what was expected, what came and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mindgap.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    import torch


def integer(
    name: str,
    value: object,
    low: int = 1,
    high: int | None = None,
    meaning: str = "",
    advice: str = "",
) -> int:
    """Return ``value`` if it is an integer in [low, high].

    Args:
        name: The argument's name, for the message.
        value: What the user passed.
        low: Smallest allowed value.
        high: Largest allowed value; no limit if None.
        meaning: What ``high`` is, such as "the number of samples".
        advice: What the user can do other than lower the value.

    >>> integer("size", 9, 1, 5, "the number of samples", "pass more data")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: size must be an integer from 1 to 5 (the number of samples), got 9. \
Lower size or pass more data.
    """
    wanted = (
        f"of at least {low}"
        if high is None
        else f"from {low} to {high}" + (f" ({meaning})" if meaning else "")
    )
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be an integer {wanted}, got {value!r}. Pass a whole number.")
    if value < low:
        raise InputError(f"{name} must be an integer {wanted}, got {value}. Raise {name}.")
    if high is not None and value > high:
        more = f" or {advice}" if advice else ""
        raise InputError(f"{name} must be an integer {wanted}, got {value}. Lower {name}{more}.")
    return value


def number(name: str, value: float, low: float = 0.0, high: float = math.inf) -> float:
    """Return ``value`` as a float if it is a finite number in [low, high].

    >>> number("fraction", 1.5, 0, 1)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: fraction must be a number from 0 to 1, got 1.5. Lower fraction.
    """
    wanted = f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{name} must be a number {wanted}, got {value!r}. Pass a finite number.")
    if not low <= value <= high:
        raise InputError(
            f"{name} must be a number {wanted}, got {value}. {'Raise' if value < low else 'Lower'} "
            f"{name}."
        )
    return float(value)


def rate(name: str, value: float) -> float:
    """Return ``value`` if it is a probability below one.

    >>> rate("dropout", 1.0)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: dropout must be a number from 0 to below 1, got 1.0. Use 0 to switch it off.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value < 1
        or math.isnan(value)
    ):
        raise InputError(
            f"{name} must be a number from 0 to below 1, got {value!r}. Use 0 to switch it off."
        )
    return float(value)


def choice(name: str, value: str, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of the known names, else suggest the nearest one.

    >>> choice("kind", "pair", ["pair", "symmetric"])
    'pair'
    """
    names = list(known)
    if value not in names:
        raise unknown_name(name, str(value), names)
    return value


def generator(seed: int) -> torch.Generator:
    """Create a seeded generator, so that torch's global one stays untouched.

    >>> import torch
    >>> torch.equal(torch.rand(3, generator=generator(0)), torch.rand(3, generator=generator(0)))
    True
    """
    import torch  # a driver of trials checks its arguments without it

    return torch.Generator().manual_seed(integer("seed", seed, 0, 2**63 - 1))
