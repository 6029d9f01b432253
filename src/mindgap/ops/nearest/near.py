"""Near: the neighbours of some points, and how ties at the k-th distance are treated."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from mindgap.ops.nearest.points import Points
from mindgap.ops.nearest.ragged import rows_of, starts


@dataclasses.dataclass(frozen=True)
class Near:
    """For each of ``rows``, the points up to its k-th distance: ``index[start[i]:start[i + 1]]``.

    ``inner`` marks the points that are strictly nearer than the k-th distance; all others are tied at it. How many of
    the tied points are listed does not depend on k, so a row may list more than k.
    """

    rows: Tensor
    start: Tensor
    index: Tensor
    square: Tensor
    inner: Tensor


def kth_square(points: Points, index: Tensor, square: Tensor, k: int) -> Tensor:
    """The k-th smallest squared distance of each line of ``(q, c)`` candidates, equal rows counted each."""
    if not points.repeated:
        return square.kthvalue(k, dim=1).values
    ordered, order = square.sort(dim=1)
    enough = points.count[index.gather(1, order)].cumsum(1) >= k
    return ordered.gather(1, enough.byte().argmax(1, keepdim=True))[:, 0]


def kept(points: Points, rows: Tensor, index: Tensor, square: Tensor, kth: Tensor) -> Near:
    """Of ``(q, c)`` candidates those up to the k-th distance, ties included."""
    width = points.ties(kth)
    keep = square <= (kth + width)[:, None]
    inner = square < (kth - width)[:, None]
    return Near(rows, starts(keep.sum(1)), index[keep], square[keep], inner[keep])


def kept_of_pairs(points: Points, rows: Tensor, line: Tensor, index: Tensor, square: Tensor, k: int) -> Near:
    """The same of candidates that come as pairs (line of ``rows``, point)."""
    order = square.argsort(stable=True)
    order = order[line[order].argsort(stable=True)]
    line, index, square = line[order], index[order], square[order]
    start = starts(torch.bincount(line, minlength=len(rows)))
    total = starts(points.count[index])
    reached = total[1:] - total[start[line]] >= k
    place = torch.arange(len(line)).masked_fill(~reached, len(line))
    first = torch.full((len(rows),), len(line)).scatter_reduce(0, line, place, "amin")
    kth = square[first]
    width = points.ties(kth)
    keep = square <= (kth + width)[line]
    inner = square < (kth - width)[line]
    return Near(rows, starts(torch.bincount(line[keep], minlength=len(rows))), index[keep], square[keep], inner[keep])


def joined(parts: list[Near]) -> Near:
    """All parts as one, in the order of their rows."""
    rows = torch.cat([part.rows for part in parts])
    index, square, inner = (torch.cat([getattr(part, name) for part in parts]) for name in ("index", "square", "inner"))
    lengths = torch.cat([part.start.diff() for part in parts])
    order = rows.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    place = rank[rows_of(starts(lengths))].argsort(stable=True)
    return Near(rows[order], starts(lengths[order]), index[place], square[place], inner[place])
