"""Numbers that JSON lacks, as words and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def worded(value: float) -> float | str:
    """A finite number as it is, another one as a word.

    >>> worded(0.5), worded(-math.inf)
    (0.5, '-Infinity')
    """
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def plain(value: Any) -> Any:
    """Data that JSON can hold: mappings and rows of them, words for numbers that it lacks, names for all else.

    >>> plain({"a": (1, math.inf), "b": None, "c": 1j})
    {'a': [1, 'Infinity'], 'b': None, 'c': '1j'}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return worded(value)
    return value if isinstance(value, str | int) or value is None else repr(value)


def unworded(value: Any) -> Any:
    """Plain data with the words turned back into numbers.

    >>> unworded({"a": ["Infinity", "text"]})
    {'a': [inf, 'text']}
    """
    if isinstance(value, dict):
        return {key: unworded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unworded(item) for item in value]
    return _WORDS.get(value, value) if isinstance(value, str) else value
