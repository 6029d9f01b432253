"""Search cell by cell: most cells cannot hold a neighbour and are never looked at."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.ops.nearest.canonical import BLOCK
from mindgap.ops.nearest.certify import settle
from mindgap.ops.nearest.near import Near
from mindgap.ops.nearest.partition import Partition
from mindgap.ops.nearest.scores import GROUP, Scores

FIRST = 48  # so many times k points bound the distance to the k-th
SMALL_GROUP = 8
TRIED = 8  # cells after which it shows whether cells help
WORTHWHILE = 0.4  # share of the points looked at up to which they do


class Pruned:
    """A search that looks only into the cells that may hold a neighbour of some rows of one cell."""

    def __init__(self, scores: Scores, partition: Partition, k: int, memory: int) -> None:
        self.scores, self.partition, self.k, self.points = scores, partition, k, scores.points
        self.numbers = memory // (torch.finfo(scores.dtype).bits // 4)  # of a table that takes half the memory
        blocks = partition.order.split(BLOCK)
        self.lines = torch.cat([scores.columns(self.points.rows[block])[: len(block)] for block in blocks])
        self.start = partition.start.tolist()
        self.shares: list[float] = []

    @property
    def helps(self) -> bool:
        """Whether the bounds exclude enough to be worth their price."""
        return len(self.shares) < TRIED or sum(self.shares) < WORTHWHILE * len(self.shares)

    def search(self, rows: Tensor, cell: int, final: bool) -> tuple[list[Near], Tensor]:
        """The neighbours of ``rows``, all of one cell, and the rows left without a proof."""
        queries = self.scores.queries(rows)
        centered = self.points.centered(self.points.rows[rows])
        column, columns = self._columns(self.partition.open_cells(centered, cell, self._distance(rows, queries, cell)))
        self.shares.append(len(column) / len(self.points))
        size = max(1, self.numbers // len(columns))
        found = [
            self._settled(some, lines @ columns.T, column, final)
            for some, lines in zip(rows.split(size), queries.split(size), strict=True)
        ]
        return [near for done, _ in found for near in done], torch.cat([rest for _, rest in found])

    def _settled(self, rows: Tensor, table: Tensor, column: Tensor, final: bool) -> tuple[list[Near], Tensor]:
        minima = table.unflatten(1, (GROUP, -1)).amin(1)
        return settle(self.scores, rows, table, minima, table.shape[1], column, self.k, final)

    def _distance(self, rows: Tensor, queries: Tensor, cell: int) -> Tensor:
        """A distance within which each row surely has k points, ties included: from its own and the next cells.

        The k-th smallest of the minima of small groups is not below the k-th smallest of all, and quicker to find.
        """
        nearest = self.partition.apart[cell].argsort()
        enough = self.partition.start.diff()[nearest].cumsum(0) >= min(FIRST * self.k, len(self.points))
        first = nearest[: int(enough.byte().argmax()) + 1]
        minima = (queries @ self._columns(first)[1].T).unflatten(1, (SMALL_GROUP, -1)).amin(1)
        if minima.shape[1] < self.k:
            return torch.full((len(rows),), torch.inf, dtype=torch.float64)
        score = minima.kthvalue(self.k, dim=1).values
        square = self.scores.ceiling(rows, score, float(self.partition.length[first].max())).clamp_min(0)
        return (square + self.points.ties(square)).sqrt()

    def _columns(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """The points of some cells, and their columns filled up to whole groups."""
        spans = [slice(self.start[cell], self.start[cell + 1]) for cell in cells.tolist()]
        column = torch.cat([self.partition.order[span] for span in spans])
        padding = self.lines.new_zeros(-len(column) % GROUP, self.lines.shape[1])
        padding[:, -1] = self.scores.far
        return column, torch.cat([*(self.lines[span] for span in spans), padding])
