"""Numbers that JSON lacks, as words and back."""

from __future__ import annotations

import math
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
