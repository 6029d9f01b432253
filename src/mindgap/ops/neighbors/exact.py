"""Exact neighbors from matrix products, with a proof for every row.

A matrix product proposes candidates, direct differences give their distances, and a rounding bound
proves that no other point is nearer. Many points are searched cell by cell, because most cells
cannot hold a neighbor.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from mindgap.ops.neighbors.partition import Partition
from mindgap.ops.neighbors.points import BLOCK, Points
from mindgap.ops.neighbors.scores import GROUP, Near, Scores, settle

FIRST = 48  # times k: the points whose distances bound the k-th
SMALL_GROUP = 8
TRIED = 8  # cells searched before pruning is judged
WORTHWHILE = 0.4  # share of the points left to compare above which pruning does not pay
FEWEST = 4096  # points below which cells cost more than they save
ROWS = 512  # queries worked on at once, if memory allows


def exact_blocks(points: Points, rows: Tensor, k: int, memory: int) -> Iterator[Near]:
    """Yield the neighbors of ``rows``, block after block, in no particular order.

    Single precision serves every row that it can prove right. The others are searched again in
    double precision, where rows that still have no proof are compared with every point that the
    bound does not exclude.

    Args:
        points: The points to search.
        rows: Indices of the query points.
        k: Number of neighbors, the point itself included.
        memory: Bytes that a block of distances may take.
    """
    worth_cells = len(points) >= FEWEST and len(rows) * 8 >= len(points) and not points.on_disk
    partition = Partition(points, int(1.5 * len(points) ** 0.5)) if worth_cells else None
    for dtype in (torch.float32, torch.float64):
        scores, final = Scores(points, dtype), dtype == torch.float64
        if len(rows) and (final or scores.trustworthy):
            search = Pass(scores, k, memory, final)
            yield from search.run(rows, partition)
            rows, partition = torch.cat([rows[:0], *search.left]), search.partition


class Pass:
    """One pass over some rows in one precision; ``left`` collects the rows without a proof."""

    def __init__(self, scores: Scores, k: int, memory: int, final: bool) -> None:
        self.scores, self.k, self.memory, self.final = scores, k, memory, final
        self.left: list[Tensor] = []
        self.partition: Partition | None = None
        self.size = _block_rows(scores, memory)
        self.seen = self.refused = 0

    def run(self, rows: Tensor, partition: Partition | None) -> Iterator[Near]:
        """Search cell by cell as long as this helps, and then through all points."""
        self.partition = partition
        if partition is not None:
            plain: list[Tensor] = [rows[:0]]
            search = PrunedSearch(self.scores, partition, self.k, self.memory)
            yield from self._cells(rows, search, plain)
            rows = torch.cat(plain)
        yield from self._all(rows)

    def _cells(self, rows: Tensor, search: "PrunedSearch", plain: list[Tensor]) -> Iterator[Near]:
        cell = search.partition.cell[rows]
        order = cell.argsort(stable=True)
        sizes = torch.bincount(cell, minlength=len(search.partition)).tolist()
        for number, members in enumerate(rows[order].split(sizes)):
            for block in members.split(ROWS) if len(members) else ():
                if not search.helps:
                    self.partition = None
                    plain.append(block)
                elif not self._hopeless(block):
                    yield from self._noted(block, *search.search(block, number, self.final))

    def _all(self, rows: Tensor) -> Iterator[Near]:
        height, width = min(self.size, len(rows)), self.scores.width
        table = torch.empty(height, width, dtype=self.scores.dtype)
        minima = torch.empty(height, width // GROUP, dtype=self.scores.dtype)
        every = torch.arange(len(self.scores.points))
        for block in rows.split(self.size) if len(rows) else ():
            if not self._hopeless(block):
                part, least = table[: len(block)], minima[: len(block)]
                self.scores.fill(block, part, least)
                found = settle(
                    self.scores, block, part, least, self.scores.tile, every, self.k, self.final
                )
                yield from self._noted(block, *found)

    def _noted(self, block: Tensor, found: list[Near], rest: Tensor) -> list[Near]:
        self.seen, self.refused = self.seen + len(block), self.refused + len(rest)
        self.left.append(rest)
        return found

    def _hopeless(self, block: Tensor) -> bool:
        """Leave the block to the next pass if most rows so far ended without a proof."""
        if self.final or self.refused * 2 <= self.seen:
            return False
        self.left.append(block)
        return True


def _block_rows(scores: Scores, memory: int) -> int:
    bytes_per_row = 2 * scores.width * torch.finfo(scores.dtype).bits // 8
    return int(min(ROWS, max(1, memory // bytes_per_row)))


class PrunedSearch:
    """A search that skips the cells that cannot hold a neighbor of some rows of one cell."""

    def __init__(self, scores: Scores, partition: Partition, k: int, memory: int) -> None:
        self.scores, self.partition, self.k, self.points = scores, partition, k, scores.points
        # The entries of a table that takes half the memory; its minima and copies take the rest.
        self.numbers = memory // (torch.finfo(scores.dtype).bits // 4)
        blocks = partition.order.split(BLOCK)
        self.lines = torch.cat(
            [scores.columns(self.points.rows[block])[: len(block)] for block in blocks]
        )
        self.start = partition.start.tolist()
        self.shares: list[float] = []

    @property
    def helps(self) -> bool:
        """Whether the bounds exclude enough points to be worth their cost."""
        return len(self.shares) < TRIED or sum(self.shares) < WORTHWHILE * len(self.shares)

    def search(self, rows: Tensor, cell: int, final: bool) -> tuple[list[Near], Tensor]:
        """Find the neighbors of ``rows``, all of one cell; also return the rows without a proof."""
        queries = self.scores.queries(rows)
        centered = self.points.centered(self.points.rows[rows])
        column, columns = self._columns(
            self.partition.open_cells(centered, cell, self._distance(rows, queries, cell))
        )
        self.shares.append(len(column) / len(self.points))
        size = max(1, self.numbers // len(columns))
        found = [
            self._settled(some, lines @ columns.T, column, final)
            for some, lines in zip(rows.split(size), queries.split(size), strict=True)
        ]
        return [near for done, _ in found for near in done], torch.cat([rest for _, rest in found])

    def _settled(
        self, rows: Tensor, table: Tensor, column: Tensor, final: bool
    ) -> tuple[list[Near], Tensor]:
        minima = table.unflatten(1, (GROUP, -1)).amin(1)
        return settle(self.scores, rows, table, minima, table.shape[1], column, self.k, final)

    def _distance(self, rows: Tensor, queries: Tensor, cell: int) -> Tensor:
        """Bound the k-th distance of each row, ties included, from its own and the next cells.

        The k-th smallest of the minima of small groups is never below the k-th smallest of all, and
        it is faster to find.
        """
        nearest = self.partition.apart[cell].argsort()
        enough = self.partition.start.diff()[nearest].cumsum(0) >= min(
            FIRST * self.k, len(self.points)
        )
        first = nearest[: int(enough.byte().argmax()) + 1]
        minima = (queries @ self._columns(first)[1].T).unflatten(1, (SMALL_GROUP, -1)).amin(1)
        if minima.shape[1] < self.k:
            return torch.full((len(rows),), torch.inf, dtype=torch.float64)
        score = minima.kthvalue(self.k, dim=1).values
        square = self.scores.ceiling(
            rows, score, float(self.partition.length[first].max())
        ).clamp_min(0)
        return (square + self.points.ties(square)).sqrt()

    def _columns(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """List the points of some cells, and their columns padded to whole groups."""
        spans = [slice(self.start[cell], self.start[cell + 1]) for cell in cells.tolist()]
        column = torch.cat([self.partition.order[span] for span in spans])
        padding = self.lines.new_zeros(-len(column) % GROUP, self.lines.shape[1])
        padding[:, -1] = self.scores.far
        return column, torch.cat([*(self.lines[span] for span in spans), padding])
