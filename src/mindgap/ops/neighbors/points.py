"""Points: the distinct rows of a table under a metric, and their exact distances.

Equal rows become one point with a count. Points are ordered by a hash of their numbers, so every
result depends on the set of rows and never on their order. Lists of unequal length (the neighbors
of each point, the rows equal to it) are laid end to end: list ``i`` holds the entries ``start[i]``
to ``start[i + 1]``.
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

Metric = Literal["euclidean", "cosine"]
METRICS = ("euclidean", "cosine")
UNIT = 2.0**-53  # the rounding error of a double
LARGEST = 1e150  # beyond it a square leaves the doubles
BLOCK = 8192  # rows worked on at once


@dataclasses.dataclass(frozen=True)
class Distinct:
    """Distinct rows of a table; row ``u`` equals its rows ``member[start[u]:start[u + 1]]``."""

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


@dataclasses.dataclass(frozen=True)
class Points:
    """Distinct rows and the distance ``‖(x - y) · scale‖`` between them.

    Attributes:
        table: Which rows of the table each point stands for.
        rows: The coordinates, one row per point.
        scale: A factor per feature, or None for all ones.
        blur: Size of the rounding errors that the rows themselves carry: zero for rows as given, a
            few units in the last place for rows that were normalized to length one.
        on_disk: Whether the rows are in a memory-mapped file.
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
        """The mean point. Approximate distances are taken from it, which reduces cancellation."""
        return _mean(self.rows, torch.ones(len(self)))

    @functools.cached_property
    def reach(self) -> float:
        """The largest norm of a row, which bounds the rounding error of a centered row."""
        return max(
            float(self.scaled(block.double()).norm(dim=1).max()) for block in self.rows.split(BLOCK)
        )

    @functools.cached_property
    def square_length(self) -> Tensor:
        """The squared norm of every centered row."""
        return torch.cat([self.centered(block).square().sum(1) for block in self.rows.split(BLOCK)])

    def scaled(self, rows: Tensor) -> Tensor:
        """Multiply rows by the scale of the metric."""
        return rows if self.scale is None else rows * self.scale

    def centered(self, rows: Tensor) -> Tensor:
        """Subtract the center from rows and scale them, in double precision."""
        return self.scaled(rows.double() - self.center)

    def squares(self, left: Tensor, right: Tensor) -> Tensor:
        """Compute squared distances ``(q, c)`` from ``q`` points to ``c`` points each, exactly.

        The difference is taken before anything is rounded, so the relative error is that of a sum
        of squares in double precision, however far the points are from zero.

        Args:
            left: Indices ``(q,)`` of points.
            right: Indices ``(q, c)`` of the points to compare each of them with.
        """
        near = self.rows.index_select(0, right.reshape(-1)).view(*right.shape, -1).double()
        difference = self.scaled(near.sub_(self.rows[left].double()[:, None]))
        return torch.einsum("qcd,qcd->qc", difference, difference)

    def ties(self, square: Tensor) -> Tensor:
        """Compute the half-width within which squared distances count as equal."""
        # Eight times the rounding error of the sum of squares: two distances that are equal in
        # exact arithmetic must never differ here, or the order of the samples would decide ties.
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
    """Prepare the rows of a table for a search.

    Args:
        table: Features, one row per sample.
        labels: They fix the order of equal rows; None where labels do not matter.
        metric: ``"euclidean"`` or ``"cosine"``.
        standardize: Divide every feature by its standard deviation.
        on_disk: Keep copies of the table in temporary files.
    """
    if metric not in METRICS:
        raise InputError(
            f"metric must be 'euclidean' or 'cosine', got {metric!r}. Choose one of the two."
        )
    _check_size(table)
    found = distinct(table, labels, on_disk)
    scale = _scale(found.rows, found.start.diff()) if standardize else None
    if metric == "euclidean":
        return Points(found, found.rows, scale, 0.0, on_disk)
    return Points(found, _directions(found, scale, on_disk), None, 16 * UNIT, on_disk)


def _check_size(table: Tensor) -> None:
    """Raise if a number is so large that its square overflows."""
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
    """Normalize rows to length one, after standardizing if asked; zero rows stay zero."""
    mean = None if scale is None else _mean(found.rows, found.start.diff())
    shape = found.rows.shape
    result = (
        disk_table(shape[0], shape[1], torch.float64)
        if on_disk
        else torch.empty(shape, dtype=torch.float64)
    )
    for start, block in zip(range(0, shape[0], BLOCK), found.rows.split(BLOCK), strict=True):
        rows = block.double() if mean is None or scale is None else (block.double() - mean) * scale
        length = rows.norm(dim=1, keepdim=True)
        result[start : start + BLOCK] = rows / torch.where(
            length > 0, length, torch.ones_like(length)
        )
    return result


def distinct(table: Tensor, labels: Tensor | None = None, on_disk: bool = False) -> Distinct:
    """Find the distinct rows, in the order of their hashes.

    Equal rows are in the order of their labels' hashes. Every later sum therefore runs in the same
    order however the table was shuffled, and its bits agree too.
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
    """Hash each row's numbers to 64 bits; 0.0 and -0.0 are one number."""
    odd = (
        torch.randint(
            -(2**62), 2**62, (table.shape[1],), generator=torch.Generator().manual_seed(0)
        )
        * 2
        + 1
    )
    return torch.cat([_mixed(block, odd) for block in table.split(BLOCK)])


def _mixed(block: Tensor, odd: Tensor) -> Tensor:
    # Adding zero turns -0.0 into 0.0. The products wrap around, as a hash wants.
    bits = (block.double() + 0.0).view(torch.int64) * odd
    bits = (bits ^ (bits >> 32)) * odd.flip(0)
    return (bits ^ (bits >> 29)).sum(1)


def _lengths(first: Tensor, total: int) -> Tensor:
    return torch.cat([first, first.new_tensor([total])]).diff()


def _taken(table: Tensor, order: Tensor, on_disk: bool) -> Tensor:
    if not on_disk:
        return table[order]
    copy = disk_table(len(order), table.shape[1], table.dtype)
    for start, index in zip(range(0, len(order), BLOCK), order.split(BLOCK), strict=True):
        copy[start : start + len(index)] = table[index]
    return copy


def disk_table(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Create a table in a nameless temporary file, which vanishes with the last tensor on it."""
    with tempfile.TemporaryDirectory(prefix="mindgap-") as folder:
        kind = np.dtype("float32" if dtype == torch.float32 else "float64")
        mapped = np.memmap(Path(folder) / "rows", dtype=kind, mode="w+", shape=(rows, columns))
        return torch.from_numpy(mapped)


def starts(lengths: Tensor) -> Tensor:
    """Compute where each list begins, and where the last one ends.

    >>> starts(torch.tensor([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def rows_of(start: Tensor) -> Tensor:
    """Give every entry the number of its list.

    >>> rows_of(torch.tensor([0, 2, 2, 5])).tolist()
    [0, 0, 2, 2, 2]
    """
    return torch.repeat_interleave(torch.arange(len(start) - 1), start.diff())


def entries(start: Tensor, rows: Tensor) -> Tensor:
    """List the entries of the lists ``rows``, one list after the other.

    >>> entries(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    lengths = start[rows + 1] - start[rows]
    ends = lengths.cumsum(0)
    first = torch.repeat_interleave(start[rows] - (ends - lengths), lengths)
    return first + torch.arange(int(ends[-1]) if len(ends) else 0)


def sums(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Sum ``values`` over the entries of each of ``count`` lists."""
    return values.new_zeros(count, *values.shape[1:]).index_add_(0, rows, values)


def largest(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Find the largest of non-negative ``values`` in each of ``count`` lists."""
    return values.new_zeros(count).scatter_reduce_(0, rows, values, "amax")
