"""Scores that bound squared distances from below, and the neighbors that they prove.

One matrix product gives a score per pair of points. The best candidates by score get their exact
distance; a score that already proves a larger distance certifies that no other point is nearer.
"""

import dataclasses
import functools
from typing import Any

import torch
from torch import Tensor

from mindgap.ops.neighbors.points import UNIT, Points, rows_of, starts

GROUP = 16  # columns that share a minimum; 8 to 32 measured alike
TILE = 2048  # columns of one product: its result is still in the cache when minima are taken
PATIENCE = 32  # times k: up to so many candidates of a row, differences beat another product
PAIRS = 2**20  # numbers held at once while pairs are compared


@dataclasses.dataclass(frozen=True)
class Near:
    """The neighbors of some points: all points up to the k-th distance, ties included.

    All points tied at the k-th distance are listed, so a list may be longer than k.

    Attributes:
        rows: Indices of the query points.
        start: The neighbors of ``rows[i]`` are the entries ``start[i]`` to ``start[i + 1]``.
        index: Indices of the neighbors.
        square: Squared distances.
        inner: Whether a neighbor is strictly nearer than the k-th distance; all others are tied.
    """

    rows: Tensor
    start: Tensor
    index: Tensor
    square: Tensor
    inner: Tensor


def kth_square(points: Points, index: Tensor, square: Tensor, k: int) -> Tensor:
    """Find the k-th smallest squared distance of ``(q, c)`` candidates, counting equal rows."""
    if not points.repeated:
        return square.kthvalue(k, dim=1).values
    ordered, order = square.sort(dim=1)
    enough = points.count[index.gather(1, order)].cumsum(1) >= k
    return ordered.gather(1, enough.byte().argmax(1, keepdim=True))[:, 0]


def kept(points: Points, rows: Tensor, index: Tensor, square: Tensor, kth: Tensor) -> Near:
    """Keep, of ``(q, c)`` candidates, those up to the k-th distance, ties included."""
    width = points.ties(kth)
    keep = square <= (kth + width)[:, None]
    inner = square < (kth - width)[:, None]
    return Near(rows, starts(keep.sum(1)), index[keep], square[keep], inner[keep])


def kept_of_pairs(
    points: Points, rows: Tensor, line: Tensor, index: Tensor, square: Tensor, k: int
) -> Near:
    """Keep, of candidate pairs (line of ``rows``, point), those up to the k-th distance."""
    order = square.argsort(stable=True)
    order = order[line[order].argsort(stable=True)]
    line, index, square = line[order], index[order], square[order]
    start = starts(torch.bincount(line, minlength=len(rows)))
    total = starts(points.count[index])
    reached = total[1:] - total[start[line]] >= k
    position = torch.arange(len(line)).masked_fill(~reached, len(line))
    first = torch.full((len(rows),), len(line)).scatter_reduce(0, line, position, "amin")
    kth = square[first]
    width = points.ties(kth)
    keep = square <= (kth + width)[line]
    inner = square < (kth - width)[line]
    return Near(
        rows,
        starts(torch.bincount(line[keep], minlength=len(rows))),
        index[keep],
        square[keep],
        inner[keep],
    )


def joined(parts: list[Near]) -> Near:
    """Concatenate parts, in the order of their rows."""
    rows = torch.cat([part.rows for part in parts])
    index, square, inner = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("index", "square", "inner")
    )
    lengths = torch.cat([part.start.diff() for part in parts])
    order = rows.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    moved = rank[rows_of(starts(lengths))].argsort(stable=True)
    return Near(rows[order], starts(lengths[order]), index[moved], square[moved], inner[moved])


class Scores:
    r"""Lower bounds of distances by blocked matrix products in single or double precision.

    For a query q and a point y, both centered, ``‖q-y‖² = ‖q‖² + 2(½‖y‖² - q·y)``. The
    bracket, computed with rounding error u in d dimensions, is wrong by at most ``c(½‖q‖² + ‖y‖²)``
    with ``c = (d+10)u`` (a sum of d+1 products in any order, rows rounded once, ``‖q‖‖y‖ ≤
    ½(‖q‖²+‖y‖²)``). So with

    .. math:: s = (\tfrac12 - c)\|y\|^2 - q \cdot y, \qquad
              \|q-y\|^2 \ge (1 - c)\|q\|^2 + 2s - \text{slack}.

    The error depends on y alone, so an outlier loosens no score but its own. ``slack`` covers
    underflow and the rounding of the centering itself (ρ ≤ 8·2⁻⁵³·max‖x‖ for each pair, which gives
    ρ²/u + ρ²).
    """

    def __init__(self, points: Points, dtype: torch.dtype) -> None:
        self.points, self.dtype = points, dtype
        unit, dimension = torch.finfo(dtype).eps / 2, points.rows.shape[1]
        rounded = 8 * UNIT * points.reach
        self.share = (dimension + 10) * unit
        self.slack = rounded**2 / unit + rounded**2 + 4 * (dimension + 4) * torch.finfo(dtype).tiny
        self.tile = TILE
        self.width = -(-len(points) // GROUP) * GROUP
        self.far = torch.finfo(dtype).max / 4

    def columns(self, rows: Tensor) -> Tensor:
        """Turn rows into columns ``(-y, (½-c)‖y‖²)``, padded to whole groups with far points."""
        centered = self.points.centered(rows)
        padded = torch.zeros(-(-len(rows) // GROUP) * GROUP, rows.shape[1] + 1, dtype=self.dtype)
        padded[:, -1] = self.far
        padded[: len(rows), :-1] = -centered
        padded[: len(rows), -1] = (0.5 - self.share) * centered.square().sum(1)
        return padded

    @functools.cached_property
    def held(self) -> list[Tensor] | None:
        """All tiles at once, unless the points are on disk because they are too many."""
        return (
            None
            if self.points.on_disk
            else [self.columns(rows) for rows in self.points.rows.split(self.tile)]
        )

    def queries(self, rows: Tensor) -> Tensor:
        """Turn points into lines ``(q, 1)``."""
        centered = self.points.centered(self.points.rows[rows]).to(self.dtype)
        return torch.cat([centered, torch.ones(len(rows), 1, dtype=self.dtype)], dim=1)

    def fill(self, rows: Tensor, scores: Tensor, minima: Tensor) -> None:
        """Write the scores ``(q, width)`` of ``rows`` and the minimum of each group of columns."""
        lines, done = self.queries(rows), 0
        for number, block in enumerate(self.points.rows.split(self.tile)):
            tile = self.held[number] if self.held is not None else self.columns(block)
            part = scores[:, done : done + len(tile)]
            torch.mm(lines, tile.T, out=part)
            least = minima[:, done // GROUP : (done + len(tile)) // GROUP]
            torch.amin(part.unflatten(1, (GROUP, -1)), dim=1, out=least)
            done += len(tile)

    def ceiling(self, rows: Tensor, score: Tensor, length: float) -> Tensor:
        """Bound squared distances from above, for points of a given score.

        The same error bound as above, from the other side: ``(1 + c)‖q‖² + 2s + 4c‖y‖² + slack``.

        Args:
            rows: Indices of the queries.
            score: One score per query.
            length: Largest squared norm of the points that may have this score.
        """
        return (
            (1 + self.share) * self.points.square_length[rows]
            + 2 * score.double()
            + 4 * self.share * length
            + self.slack
        )

    def limit(self, rows: Tensor, square: Tensor) -> Tensor:
        """Compute the score above which a point is surely farther from ``rows`` than ``square``."""
        length = self.points.square_length[rows]
        limit = (square + self.slack - (1 - self.share) * length) / 2
        return limit + 4 * UNIT * (square + length)  # the three roundings of the line above

    @property
    def trustworthy(self) -> bool:
        """Whether products are taken in this precision and squared distances do not overflow it."""
        whole = self.dtype == torch.float64 or full_precision()
        return whole and self.points.reach**2 < torch.finfo(self.dtype).max / 64


def full_precision() -> bool:
    """Check that torch multiplies in single precision: a setting may allow bfloat16 or TF32."""
    scopes: list[Any] = [
        torch.backends,
        torch.backends.mkldnn,
        getattr(torch.backends.mkldnn, "matmul", None),
    ]
    settings = {getattr(scope, "fp32_precision", None) for scope in scopes}
    if settings == {None}:  # before torch 2.9
        return torch.get_float32_matmul_precision() == "highest"
    return settings <= {None, "none", "ieee"}


def least(scores: Tensor, minima: Tensor, tile: int, count: int) -> tuple[Tensor, Tensor]:
    """Find the ``count`` smallest scores of each line, in rising order, and their columns.

    They lie in the ``count`` groups of smallest minimum, so only those are searched. A group is
    every (tile/16)-th column of its tile; the last tile may be narrower.
    """
    if count * 2 > minima.shape[1]:
        values, index = scores.topk(count, dim=1, largest=False)
        return values, index
    group = minima.topk(count, dim=1, largest=False, sorted=False).indices
    before = group * GROUP // tile * tile
    span = (scores.shape[1] - before).clamp_max(tile) // GROUP
    first = before + group - before // GROUP
    inside = (first[:, :, None] + torch.arange(GROUP) * span[:, :, None]).flatten(1)
    values, chosen = scores.gather(1, inside).topk(count, dim=1, largest=False)
    return values, inside.gather(1, chosen)


def settle(
    scores: Scores,
    rows: Tensor,
    table: Tensor,
    minima: Tensor,
    tile: int,
    column: Tensor,
    k: int,
    final: bool,
) -> tuple[list[Near], Tensor]:
    """Find the neighbors of ``rows`` from a table of scores.

    The best candidates by score get their exact distance, and the k-th of these is at least the
    k-th of all. If the next score already proves a larger distance, no other point matters.
    Otherwise every point that its score does not exclude is compared, unless there are too many and
    this is not the ``final`` pass.

    Args:
        scores: The scores that filled the table.
        rows: Indices of the queries, one per line of the table.
        table: Scores ``(q, width)``.
        minima: The minimum of each group of columns.
        tile: Number of columns of a tile.
        column: The point of every column, without the padding.
        k: Number of neighbors, the point itself included.
        final: Whether every row must be finished.

    Returns:
        The neighbors of the finished rows, and the rows left without a proof.
    """
    points, wide = scores.points, min(k + max(4, k // 4), len(column))
    values, candidate = least(table, minima, tile, min(wide + 1, table.shape[1]))
    index = column[candidate[:, :wide]]
    square = points.squares(rows, index)
    kth = kth_square(points, index, square, k)
    limit = scores.limit(rows, kth + points.ties(kth))
    sure = (
        values[:, wide].double() > limit
        if wide < len(column)
        else torch.ones_like(rows, dtype=torch.bool)
    )
    done = [kept(points, rows[sure], index[sure], square[sure], kth[sure])]
    if bool(sure.all()):
        return done, rows[:0]
    more, rest = _compared(
        scores, rows[~sure], table[~sure, : len(column)], limit[~sure], column, k, final
    )
    return [*done, *more], rest


def _compared(
    scores: Scores, rows: Tensor, table: Tensor, limit: Tensor, column: Tensor, k: int, final: bool
) -> tuple[list[Near], Tensor]:
    # The limit is a double. Rounding it to the precision of the table could exclude a neighbor, so
    # the next larger number is taken.
    ceiling = torch.nextafter(
        limit.to(scores.dtype), torch.full_like(limit, torch.inf, dtype=scores.dtype)
    )
    open_ = table <= ceiling[:, None]
    few = torch.full_like(rows, final, dtype=torch.bool) | (open_.sum(1) <= PATIENCE * k)
    # In the final pass all pairs may be open, and a list of all of them would not fit in memory.
    size = max(1, len(rows) // 8) if final else len(rows)
    parts = zip(rows[few].split(size), open_[few].split(size), strict=True)
    return [
        _of_open(scores.points, some, open_pairs, column, k)
        for some, open_pairs in parts
        if len(some)
    ], rows[~few]


def _of_open(points: Points, rows: Tensor, open_: Tensor, column: Tensor, k: int) -> Near:
    line, candidate = open_.nonzero(as_tuple=True)
    index = column[candidate]
    return kept_of_pairs(points, rows, line, index, _pair_squares(points, rows[line], index), k)


def _pair_squares(points: Points, left: Tensor, right: Tensor) -> Tensor:
    size = max(1, PAIRS // points.rows.shape[1])
    pairs = zip(left.split(size), right.split(size), strict=True)
    return torch.cat([points.squares(one, other[:, None])[:, 0] for one, other in pairs])
