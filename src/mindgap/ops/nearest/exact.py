"""Exact neighbours: candidates from one matrix product a block, distances by direct differences, a certificate."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mindgap.ops.nearest.near import Near, kept, kept_of_pairs, kth_square
from mindgap.ops.nearest.points import Points
from mindgap.ops.nearest.scores import GROUP, Scores

PATIENCE = 32  # so many times k candidates of a line are still cheaper by differences than by another product
PAIRS = 2**20  # numbers held at once while pairs are compared


def exact_blocks(points: Points, rows: Tensor, k: int, memory: int) -> Iterator[Near]:
    """The neighbours of ``rows``, block after block, in no particular order.

    Single precision serves every row whose certificate holds; the others are done again in double precision, where
    the rows that still have no certificate are compared with every point that the bound does not exclude.
    """
    left: list[Tensor] = []
    single = Scores(points, torch.float32)
    if single.representable:
        yield from _pass(single, rows, k, memory, left)
        rows = torch.cat(left) if left else rows[:0]
    if len(rows):
        yield from _pass(Scores(points, torch.float64), rows, k, memory, None)


def _pass(scores: Scores, rows: Tensor, k: int, memory: int, left: list[Tensor] | None) -> Iterator[Near]:
    size = block_rows(scores, memory)
    table = torch.empty(min(size, len(rows)), scores.width, dtype=scores.dtype)
    minima = torch.empty(len(table), scores.width // GROUP, dtype=scores.dtype)
    seen = refused = 0
    for block in rows.split(size):
        if left is not None and refused * 2 > seen > 0:  # hopeless: do not search twice
            left.append(block)
            continue
        done, rest = _block(scores, block, table[: len(block)], minima[: len(block)], k, left is None)
        yield from done
        seen, refused = seen + len(block), refused + len(rest)
        if left is not None:
            left.append(rest)


def block_rows(scores: Scores, memory: int) -> int:
    """How many queries are worked on at once."""
    return int(min(512, max(1, memory // (2 * scores.width * torch.finfo(scores.dtype).bits // 8))))


def _block(
    scores: Scores, rows: Tensor, table: Tensor, minima: Tensor, k: int, final: bool
) -> tuple[list[Near], Tensor]:
    points = scores.points
    scores.fill(rows, table, minima)
    wide = min(k + max(4, k // 4), len(points))
    values, index = scores.least(table, minima, min(wide + 1, scores.width))
    index = index[:, :wide]
    square = points.squares(rows, index)
    kth = kth_square(points, index, square, min(k, wide))
    limit = scores.limit(rows, kth + points.ties(kth))
    sure = torch.full_like(rows, wide == len(points), dtype=torch.bool)
    if wide < len(points):
        sure = values[:, wide].double() > limit
    done = [kept(points, rows[sure], index[sure], square[sure], kth[sure])]
    if sure.all():
        return done, rows[:0]
    more, rest = _compared(scores, rows[~sure], table[~sure], limit[~sure], k, final)
    return [*done, *more], rest


def _compared(
    scores: Scores, rows: Tensor, table: Tensor, limit: Tensor, k: int, final: bool
) -> tuple[list[Near], Tensor]:
    """Compare with every point that the limit does not exclude, unless these are too many and it is not the end."""
    table = table[:, : len(scores.points)]
    ceiling = torch.nextafter(limit.to(scores.dtype), torch.full_like(limit, torch.inf, dtype=scores.dtype))
    open_ = table <= ceiling[:, None]
    few = torch.full_like(rows, final, dtype=torch.bool) | (open_.sum(1) <= PATIENCE * k)
    chosen = rows[few]
    if not len(chosen):
        return [], rows
    line, index = open_[few].nonzero(as_tuple=True)
    square = pair_squares(scores.points, chosen[line], index)
    return [kept_of_pairs(scores.points, chosen, line, index, square, k)], rows[~few]


def pair_squares(points: Points, left: Tensor, right: Tensor) -> Tensor:
    """Exact squared distances of pairs, a bounded number at a time."""
    size = max(1, PAIRS // points.rows.shape[1])
    pairs = zip(left.split(size), right.split(size), strict=True)
    return torch.cat([points.squares(one, other[:, None])[:, 0] for one, other in pairs])
