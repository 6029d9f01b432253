"""Checks of constructor arguments, each with one sentence: what was expected, what came, what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mindgap.core.errors import InputError, unknown_name


def integer(name: str, value: object, low: int = 1, high: int | None = None) -> int:
    """Return ``value`` if it is an integer in [low, high].

    >>> integer("classes", 0)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: classes must be an integer of at least 1, got 0. Raise classes.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be an integer, got {value!r}. Pass a whole number.")
    if value < low or (high is not None and value > high):
        wanted = f"of at least {low}" if high is None else f"from {low} to {high}"
        advice = "Raise" if value < low else "Lower"
        raise InputError(f"{name} must be an integer {wanted}, got {value}. {advice} {name}.")
    return value


def rate(name: str, value: float) -> float:
    """Return ``value`` if it is a probability below one.

    >>> rate("dropout", 1.0)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: dropout must be a number from 0 to below 1, got 1.0. Use 0 to switch it off.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 or math.isnan(value):
        raise InputError(f"{name} must be a number from 0 to below 1, got {value!r}. Use 0 to switch it off.")
    return float(value)


def choice(name: str, value: str, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of the known names, else advise the nearest one.

    >>> choice("pool", "max", ["max", "average"])
    'max'
    """
    names = list(known)
    if value not in names:
        raise unknown_name(name, str(value), names)
    return value
