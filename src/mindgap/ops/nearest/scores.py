"""Scores: for every pair of points a number from one matrix product that bounds their squared distance from below."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from mindgap.ops.nearest.points import UNIT, Points

GROUP = 16  # columns that share a minimum; 8 to 32 measured alike
TILE = 2048  # columns of one product, so that its result is still in the cache when its minima are taken


class Scores:
    r"""Lower bounds of distances by blocked matrix products in single or double precision.

    For a query q and a point y, both seen from the centre, ``‖q-y‖² = ‖q‖² + 2(½‖y‖² - q·y)``. The bracket, computed
    with rounding error u in d dimensions, is wrong by at most ``c(½‖q‖² + ‖y‖²)`` with ``c = (d+10)u`` (a sum of d+1
    products in any order, rows rounded once, ``‖q‖‖y‖ ≤ ½(‖q‖²+‖y‖²)``). So with

    .. math:: s = (\tfrac12 - c)\|y\|^2 - q \cdot y, \qquad
              \|q-y\|^2 \ge (1 - c)\|q\|^2 + 2s - \text{slack}.

    An outlier y spoils its own score alone. ``slack`` holds what centring itself rounds away (ρ ≤ 8·2⁻⁵³·max‖x‖ for
    each pair, which gives ρ²/u + ρ²) and underflow.
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
        """Rows of the table as columns ``(-y, (½-c)‖y‖²)``, filled up to whole groups with points that are far away."""
        centered = self.points.centered(rows)
        padded = torch.zeros(-(-len(rows) // GROUP) * GROUP, rows.shape[1] + 1, dtype=self.dtype)
        padded[:, -1] = self.far
        padded[: len(rows), :-1] = -centered
        padded[: len(rows), -1] = (0.5 - self.share) * centered.square().sum(1)
        return padded

    @functools.cached_property
    def held(self) -> list[Tensor] | None:
        """All tiles at once, unless the points lie on disk because they are too many."""
        return None if self.points.on_disk else [self.columns(rows) for rows in self.points.rows.split(self.tile)]

    def queries(self, rows: Tensor) -> Tensor:
        """Points as lines ``(q, 1)``."""
        centered = self.points.centered(self.points.rows[rows]).to(self.dtype)
        return torch.cat([centered, torch.ones(len(rows), 1, dtype=self.dtype)], dim=1)

    def fill(self, rows: Tensor, scores: Tensor, minima: Tensor) -> None:
        """Write the scores of ``rows`` to all points ``(q, width)`` and the least of each group of columns."""
        lines, done = self.queries(rows), 0
        for number, block in enumerate(self.points.rows.split(self.tile)):
            tile = self.held[number] if self.held is not None else self.columns(block)
            part = scores[:, done : done + len(tile)]
            torch.mm(lines, tile.T, out=part)
            least = minima[:, done // GROUP : (done + len(tile)) // GROUP]
            torch.amin(part.unflatten(1, (GROUP, -1)), dim=1, out=least)
            done += len(tile)

    def ceiling(self, rows: Tensor, score: Tensor, length: float) -> Tensor:
        """The largest squared distance of ``rows`` to a point of this score and of squared length up to ``length``.

        The same bound of errors as above, from the other side: ``(1 + c)‖q‖² + 2s + 4c‖y‖² + slack``.
        """
        return (
            (1 + self.share) * self.points.square_length[rows]
            + 2 * score.double()
            + 4 * self.share * length
            + self.slack
        )

    def limit(self, rows: Tensor, square: Tensor) -> Tensor:
        """The score above which a point is surely farther from ``rows`` than ``square``."""
        length = self.points.square_length[rows]
        limit = (square + self.slack - (1 - self.share) * length) / 2
        return limit + 4 * UNIT * (square + length)  # the three roundings of the line above

    @property
    def trustworthy(self) -> bool:
        """Whether squared distances stay within the numbers of this precision and products are taken in it."""
        whole = self.dtype == torch.float64 or full_precision()
        return whole and self.points.reach**2 < torch.finfo(self.dtype).max / 64


def full_precision() -> bool:
    """Whether products of single precision are rounded as such: torch may be told to take them in half of it."""
    rooms: list[Any] = [torch.backends, torch.backends.mkldnn, getattr(torch.backends.mkldnn, "matmul", None)]
    settings = {getattr(room, "fp32_precision", None) for room in rooms}
    if settings == {None}:  # before torch 2.9
        return torch.get_float32_matmul_precision() == "highest"
    return settings <= {None, "none", "ieee"}


def least(scores: Tensor, minima: Tensor, tile: int, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` smallest scores of each line in rising order, and their columns.

    They lie in the ``count`` groups of smallest minimum, so only those are looked into. A group is every (tile/16)-th
    column of its tile; the last tile may be narrower.
    """
    if count * 2 > minima.shape[1]:
        values, index = scores.topk(count, dim=1, largest=False)
        return values, index
    group = minima.topk(count, dim=1, largest=False, sorted=False).indices
    before = group * GROUP // tile * tile
    span = (scores.shape[1] - before).clamp_max(tile) // GROUP
    first = before + group - before // GROUP
    inside = (first[:, :, None] + torch.arange(GROUP) * span[:, :, None]).flatten(1)
    values, place = scores.gather(1, inside).topk(count, dim=1, largest=False)
    return values, inside.gather(1, place)
