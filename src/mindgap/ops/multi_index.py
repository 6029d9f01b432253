"""Multi-indices: which partial derivatives there are, and what each counts in a Taylor expansion."""

from __future__ import annotations

import itertools
import math

from mindgap.core.errors import InputError

MultiIndex = tuple[int, ...]
MOST = 20_000  # partial derivatives that are worth computing one by one


def multi_indices(dimension: int, order: int) -> list[MultiIndex]:
    """All ways to share ``order`` derivatives among ``dimension`` inputs.

    >>> multi_indices(2, 2)
    [(2, 0), (1, 1), (0, 2)]
    """
    count = math.comb(dimension + order - 1, order)
    if count > MOST:
        raise InputError(
            f"Derivatives of order {order} in {dimension} inputs must be at most {MOST} in number, got {count}. "
            "Lower the order, or measure the variance around each point instead (sampled_variance)."
        )
    chosen = itertools.combinations_with_replacement(range(dimension), order)
    return [tuple(places.count(place) for place in range(dimension)) for places in chosen]


def factorial(index: MultiIndex) -> int:
    """The product of the factorials of all entries.

    >>> factorial((2, 0, 3))
    12
    """
    return math.prod(math.factorial(entry) for entry in index)


def places(index: MultiIndex) -> list[int]:
    """The inputs to differentiate by, one after the other.

    >>> places((2, 0, 1))
    [0, 0, 2]
    """
    return [place for place, times in enumerate(index) for _ in range(times)]
