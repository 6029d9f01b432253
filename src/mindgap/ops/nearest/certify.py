"""From scores to neighbours: exact distances of the best candidates, and a certificate that no other is nearer."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.ops.nearest.near import Near, kept, kept_of_pairs, kth_square
from mindgap.ops.nearest.points import Points
from mindgap.ops.nearest.scores import Scores, least

PATIENCE = 32  # so many times k candidates of a line are still cheaper by differences than by another product
PAIRS = 2**20  # numbers held at once while pairs are compared


def settle(
    scores: Scores, rows: Tensor, table: Tensor, minima: Tensor, tile: int, column: Tensor, k: int, final: bool
) -> tuple[list[Near], Tensor]:
    """The neighbours of ``rows`` among the points ``column`` of a table of scores, and the rows left without a proof.

    The best candidates by score get their exact distance, and the k-th of these is at least the k-th of all. When the
    next score already proves a larger distance, no other point matters. Else every point that its score does not
    exclude is compared, unless there are too many and this is not the ``final`` pass.
    """
    points, wide = scores.points, min(k + max(4, k // 4), len(column))
    values, place = least(table, minima, tile, min(wide + 1, table.shape[1]))
    index = column[place[:, :wide]]
    square = points.squares(rows, index)
    kth = kth_square(points, index, square, k)
    limit = scores.limit(rows, kth + points.ties(kth))
    sure = values[:, wide].double() > limit if wide < len(column) else torch.ones_like(rows, dtype=torch.bool)
    done = [kept(points, rows[sure], index[sure], square[sure], kth[sure])]
    if bool(sure.all()):
        return done, rows[:0]
    more, rest = _compared(scores, rows[~sure], table[~sure, : len(column)], limit[~sure], column, k, final)
    return [*done, *more], rest


def _compared(
    scores: Scores, rows: Tensor, table: Tensor, limit: Tensor, column: Tensor, k: int, final: bool
) -> tuple[list[Near], Tensor]:
    ceiling = torch.nextafter(limit.to(scores.dtype), torch.full_like(limit, torch.inf, dtype=scores.dtype))
    open_ = table <= ceiling[:, None]
    few = torch.full_like(rows, final, dtype=torch.bool) | (open_.sum(1) <= PATIENCE * k)
    size = max(1, len(rows) // 8) if final else len(rows)  # at the end all pairs may be open: an eighth at a time
    parts = zip(rows[few].split(size), open_[few].split(size), strict=True)
    return [_of_open(scores.points, some, open_pairs, column, k) for some, open_pairs in parts if len(some)], rows[~few]


def _of_open(points: Points, rows: Tensor, open_: Tensor, column: Tensor, k: int) -> Near:
    line, place = open_.nonzero(as_tuple=True)
    index = column[place]
    return kept_of_pairs(points, rows, line, index, pair_squares(points, rows[line], index), k)


def pair_squares(points: Points, left: Tensor, right: Tensor) -> Tensor:
    """Exact squared distances of pairs, a bounded number at a time."""
    size = max(1, PAIRS // points.rows.shape[1])
    pairs = zip(left.split(size), right.split(size), strict=True)
    return torch.cat([points.squares(one, other[:, None])[:, 0] for one, other in pairs])
