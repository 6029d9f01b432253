"""Lists of unequal length, laid end to end: row ``i`` holds the places ``start[i]`` to ``start[i + 1]``."""

from __future__ import annotations

import torch
from torch import Tensor


def starts(lengths: Tensor) -> Tensor:
    """Where each list begins, and where the last one ends.

    >>> starts(torch.tensor([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def rows_of(start: Tensor) -> Tensor:
    """The row of every place.

    >>> rows_of(torch.tensor([0, 2, 2, 5])).tolist()
    [0, 0, 2, 2, 2]
    """
    return torch.repeat_interleave(torch.arange(len(start) - 1), start.diff())


def places(start: Tensor, rows: Tensor) -> Tensor:
    """The places of the lists of ``rows``, one list after the other.

    >>> places(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    lengths = start[rows + 1] - start[rows]
    ends = lengths.cumsum(0)
    first = torch.repeat_interleave(start[rows] - (ends - lengths), lengths)
    return first + torch.arange(int(ends[-1]) if len(ends) else 0)


def sums(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """The sum of ``values`` over the places of each of ``count`` rows."""
    return values.new_zeros(count, *values.shape[1:]).index_add_(0, rows, values)


def largest(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """The largest of non-negative ``values`` over the places of each of ``count`` rows."""
    return values.new_zeros(count).scatter_reduce_(0, rows, values, "amax")
