"""A partition of the points into cells, with lower bounds on their distance to a query."""

import torch
from torch import Tensor

from mindgap.ops.neighbors.points import UNIT, Points, starts

ROUNDS = 4
BLOCK = 4096


class Partition:
    r"""Cells of nearby points around centers.

    No point y of cell B is nearer to a query q of cell A than the larger of

    .. math:: \|q-c_B\| - \max_{y \in B} \|y-c_B\|, \qquad
              \frac{(\|q-c_B\|^2 - \|q-c_A\|^2) + \min_{y \in B} (\|y-c_A\|^2 - \|y-c_B\|^2)}{2 \|c_A-c_B\|}

    by the triangle inequality and by projection on the line through the two centers. The squares
    come from products in double precision and are widened by a bound on their rounding errors. The
    distance of a centered pair differs from that of the rows themselves by at most ``rounded``.
    ``order`` lists the points cell by cell.
    """

    def __init__(self, points: Points, count: int, seed: int = 0) -> None:
        self.points = points
        self.rounded = 16 * UNIT * points.reach
        self.center = _centers(points, count, seed)
        cell = _nearest(points, self.center)
        present, cell = cell.unique(return_inverse=True)
        self.center = self.center[present]
        self.cell, self.order = cell, cell.argsort(stable=True)
        self.start = starts(torch.bincount(cell, minlength=len(self.center)))
        self._square = self.center.square().sum(1)
        self.apart = torch.cdist(
            self.center, self.center, compute_mode="donot_use_mm_for_euclid_dist"
        )
        self.radius, self.margin, self.length = self._measured()

    def __len__(self) -> int:
        return len(self.center)

    def squares(self, rows: Tensor, cell: int) -> tuple[Tensor, Tensor]:
        """Bound the squared distances to all centers from below, and to one from above."""
        error = 4 * (rows.shape[1] + 8) * UNIT
        total = rows.square().sum(1, keepdim=True)
        low = torch.addmm((1 - error) * total, rows, self.center.T, alpha=-2).add_(
            (1 - error) * self._square
        )
        high = low[:, cell : cell + 1] + 2 * error * (total + self._square[cell])
        return low, high

    def open_cells(self, rows: Tensor, cell: int, distance: Tensor) -> Tensor:
        """Find the cells that may hold a point within ``distance`` of some row.

        Args:
            rows: Centered queries, all in one cell.
            cell: That cell.
            distance: One distance per query.
        """
        low, high = self.squares(rows, cell)
        # A neighbor must never be pruned by rounding, so the distance grows by more than the sum,
        # root and square below can lose.
        reach = (distance + self.rounded)[:, None] * (1 + 1e-12)
        near = low - high <= 2 * self.apart[cell] * reach - self.margin[:, cell]
        near &= low <= (self.radius + reach).square_()
        near[:, cell] = True
        return near.any(0).nonzero()[:, 0]

    def _measured(self) -> tuple[Tensor, Tensor, Tensor]:
        radius, length = (torch.empty(len(self), dtype=torch.float64) for _ in range(2))
        margin = torch.empty(len(self), len(self), dtype=torch.float64)
        for cell, (first, last) in enumerate(zip(self.start[:-1], self.start[1:], strict=True)):
            rows = self.points.centered(self.points.rows[self.order[first:last]])
            low, own = self.squares(rows, cell)
            radius[cell] = own.max().sqrt() * (1 + 1e-12)
            margin[cell] = (low - own).amin(0)
            length[cell] = rows.square().sum(1).max()
        return radius, margin, length


def _centers(points: Points, count: int, seed: int) -> Tensor:
    """Run k-means on a sample in single precision: any centers are valid, good ones prune more."""
    generator = torch.Generator().manual_seed(seed)
    some = torch.randperm(len(points), generator=generator)[: 24 * count]
    sample = points.centered(points.rows[some]).float()
    center = sample[:count]
    for _ in range(ROUNDS):
        cell = _assigned(sample, center)
        total = torch.zeros_like(center).index_add_(0, cell, sample)
        size = torch.bincount(cell, minlength=count)
        center = torch.where(size[:, None] > 0, total / size.clamp_min(1)[:, None], center)
    return center.double()


def _nearest(points: Points, center: Tensor) -> Tensor:
    blocks = points.rows.split(BLOCK)
    return torch.cat(
        [_assigned(points.centered(block).float(), center.float()) for block in blocks]
    )


def _assigned(rows: Tensor, center: Tensor) -> Tensor:
    half = 0.5 * center.square().sum(1)
    return torch.cat(
        [torch.addmm(half, block, center.T, alpha=-1).argmin(1) for block in rows.split(BLOCK)]
    )
