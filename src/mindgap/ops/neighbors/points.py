"""Points: distinct rows under a metric, their exact distances, and copies of them that bound their own errors.

Equal rows made one, in an order that depends on the rows alone and not on the order they came in.

Lists of unequal length, laid end to end: row ``i`` holds the places ``start[i]`` to ``start[i +
1]``.
"""

import dataclasses
import functools
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mindgap.core import InputError


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


BLOCK = 8192


@dataclasses.dataclass(frozen=True)
class Distinct:
    """The distinct rows of a table; row ``u`` came from the ``member[start[u]:start[u + 1]]`` of the table."""

    rows: Tensor
    member: Tensor
    start: Tensor

    @property
    def owner(self) -> Tensor:
        """The distinct row of every row of the table."""
        owner = torch.empty_like(self.member)
        owner[self.member] = torch.repeat_interleave(
            torch.arange(len(self.rows)), self.start.diff()
        )
        return owner


def distinct(table: Tensor, labels: Tensor | None = None, on_disk: bool = False) -> Distinct:
    """The distinct rows in the order of their hashes; equal rows in the order of their labels' hashes.

    Every later sum then runs in the same order however the table was shuffled, so that its bits
    agree too.
    """
    keys = hashes(table)
    minor = torch.arange(len(table)) if labels is None else hashes(labels.reshape(len(table), -1))
    order = torch.from_numpy(np.lexsort((minor.numpy(), keys.numpy())))
    fresh = torch.ones(len(table), dtype=torch.bool)
    same = (keys[order][1:] == keys[order][:-1]).nonzero()[:, 0]
    fresh[same + 1] = (table[order[same + 1]] != table[order[same]]).any(1)
    first = fresh.nonzero()[:, 0]
    return Distinct(
        _taken(table, order[first], on_disk), order, starts(_lengths(first, len(table)))
    )


def hashes(table: Tensor) -> Tensor:
    """A 64-bit hash of each row's numbers; 0.0 and -0.0 are one number."""
    odd = (
        torch.randint(
            -(2**62), 2**62, (table.shape[1],), generator=torch.Generator().manual_seed(0)
        )
        * 2
        + 1
    )
    return torch.cat([_mixed(block, odd) for block in table.split(BLOCK)])


def _mixed(block: Tensor, odd: Tensor) -> Tensor:
    bits = (block.double() + 0.0).view(
        torch.int64
    ) * odd  # wraps around, which is what a hash wants
    bits = (bits ^ (bits >> 32)) * odd.flip(0)
    return (bits ^ (bits >> 29)).sum(1)


def _lengths(first: Tensor, total: int) -> Tensor:
    return torch.cat([first, first.new_tensor([total])]).diff()


def _taken(table: Tensor, order: Tensor, on_disk: bool) -> Tensor:
    if not on_disk:
        return table[order]
    copy = disk_table(len(order), table.shape[1], table.dtype)
    for place, index in zip(range(0, len(order), BLOCK), order.split(BLOCK), strict=True):
        copy[place : place + len(index)] = table[index]
    return copy


def disk_table(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """A table in a nameless temporary file, which vanishes with the last tensor that looks at it."""
    with tempfile.TemporaryDirectory(prefix="mindgap-") as folder:
        kind = np.dtype("float32" if dtype == torch.float32 else "float64")
        mapped = np.memmap(Path(folder) / "rows", dtype=kind, mode="w+", shape=(rows, columns))
        return torch.from_numpy(mapped)


Metric = Literal["euclidean", "cosine"]
METRICS = ("euclidean", "cosine")
UNIT = 2.0**-53  # the rounding error of a double
LARGEST = 1e150  # beyond it a square leaves the doubles


@dataclasses.dataclass(frozen=True)
class Points:
    """Distinct rows ``x`` and the distance ``‖(x - y) · scale‖`` between them, each row counted ``count`` times.

    ``blur`` is the size of the rounding errors that the rows themselves carry: zero for given rows,
    a few units in the last place for rows that were brought to length one.
    """

    table: Distinct
    rows: Tensor
    scale: Tensor | None
    blur: float
    on_disk: bool

    def __len__(self) -> int:
        return len(self.rows)

    @functools.cached_property
    def count(self) -> Tensor:
        """How many rows of the table are equal to each point."""
        return self.table.start.diff()

    @functools.cached_property
    def repeated(self) -> bool:
        """Whether some rows of the table are equal."""
        return len(self.rows) < len(self.table.member)

    @functools.cached_property
    def center(self) -> Tensor:
        """The mean point, from which approximate distances are taken: the nearer the rows, the less cancels."""
        return _mean(self.rows, torch.ones(len(self)))

    @functools.cached_property
    def reach(self) -> float:
        """The largest length of a row: it bounds what rounding may do to a centered row."""
        return max(
            float(self.scaled(block.double()).norm(dim=1).max()) for block in self.rows.split(BLOCK)
        )

    @functools.cached_property
    def square_length(self) -> Tensor:
        """The squared length of every row, seen from the center."""
        return torch.cat([self.centered(block).square().sum(1) for block in self.rows.split(BLOCK)])

    def scaled(self, rows: Tensor) -> Tensor:
        """Rows in the units of the metric."""
        return rows if self.scale is None else rows * self.scale

    def centered(self, rows: Tensor) -> Tensor:
        """Rows of the table in the units of the metric, seen from the center, in double precision."""
        return self.scaled(rows.double() - self.center)

    def squares(self, left: Tensor, right: Tensor) -> Tensor:
        """Exact squared distances ``(q, c)`` of ``q`` points (by number) to ``c`` points each, by direct differences.

        The difference is taken before anything is rounded, so the relative error is that of a sum
        of squares in double precision, wherever the points lie.
        """
        near = self.rows.index_select(0, right.reshape(-1)).view(*right.shape, -1).double()
        difference = self.scaled(near.sub_(self.rows[left].double()[:, None]))
        return torch.einsum("qcd,qcd->qc", difference, difference)

    def ties(self, square: Tensor) -> Tensor:
        """The half-width within which squared distances count as equal: eight times their rounding error."""
        relative = 8 * (self.rows.shape[1] + 8) * UNIT
        return relative * square + 2 * self.blur * square.sqrt() + self.blur**2


def as_points(
    table: Tensor,
    labels: Tensor | None,
    *,
    metric: Metric,
    standardize: bool,
    on_disk: bool = False,
) -> Points:
    """Prepare the rows of a table; ``standardize`` divides every feature by its standard deviation."""
    if metric not in METRICS:
        raise InputError(
            f"metric must be one of 'euclidean', 'cosine', got {metric!r}. Choose one of the two."
        )
    check_size(table)
    found = distinct(table, labels, on_disk)
    scale = _scale(found.rows, found.start.diff()) if standardize else None
    if metric == "euclidean":
        return Points(found, found.rows, scale, 0.0, on_disk)
    return Points(found, _directions(found, scale, on_disk), None, 16 * UNIT, on_disk)


def check_size(table: Tensor) -> None:
    """Raise when a number is so large that its square is not a number."""
    largest = max(float(block.abs().max()) for block in table.split(BLOCK))
    if largest > LARGEST:
        raise InputError(
            f"Features must be smaller than {LARGEST:g} in size, got {largest:g}. Standardize or "
            "scale them first."
        )


def _mean(rows: Tensor, count: Tensor) -> Tensor:
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for block, weight in zip(rows.split(BLOCK), count.double().split(BLOCK), strict=True):
        total += weight @ block.double()
    return total / count.sum()


def _scale(rows: Tensor, count: Tensor) -> Tensor:
    mean, total = _mean(rows, count), torch.zeros(rows.shape[1], dtype=torch.float64)
    for block, weight in zip(rows.split(BLOCK), count.double().split(BLOCK), strict=True):
        total += weight @ (block.double() - mean).square()
    deviation = (total / count.sum()).sqrt()
    constant = deviation <= 16 * UNIT * mean.abs()
    return torch.where(
        constant,
        torch.ones_like(deviation),
        1 / deviation.clamp_min(torch.finfo(torch.float64).tiny),
    )


def _directions(found: Distinct, scale: Tensor | None, on_disk: bool) -> Tensor:
    """Rows (standardized first if so wished) brought to length one; a row of zeros stays."""
    mean = None if scale is None else _mean(found.rows, found.start.diff())
    shape = found.rows.shape
    result = (
        disk_table(shape[0], shape[1], torch.float64)
        if on_disk
        else torch.empty(shape, dtype=torch.float64)
    )
    for place, block in zip(range(0, shape[0], BLOCK), found.rows.split(BLOCK), strict=True):
        rows = block.double() if mean is None or scale is None else (block.double() - mean) * scale
        length = rows.norm(dim=1, keepdim=True)
        result[place : place + BLOCK] = rows / torch.where(
            length > 0, length, torch.ones_like(length)
        )
    return result
