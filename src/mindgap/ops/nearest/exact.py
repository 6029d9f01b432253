"""Exact neighbours: matrix products give candidates, direct differences their distance, a bound the proof."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mindgap.ops.nearest.certify import settle
from mindgap.ops.nearest.near import Near
from mindgap.ops.nearest.partition import Partition
from mindgap.ops.nearest.points import Points
from mindgap.ops.nearest.pruned import Pruned
from mindgap.ops.nearest.scores import GROUP, Scores

FEWEST = 4096  # points below which cells cost more than they spare
ROWS = 512  # queries worked on at once, if memory allows


def exact_blocks(points: Points, rows: Tensor, k: int, memory: int) -> Iterator[Near]:
    """The neighbours of ``rows``, block after block, in no particular order.

    Single precision serves every row that it can prove right; the others are done again in double precision, where
    rows that still have no proof are compared with every point that the bound does not exclude.
    """
    worth_cells = len(points) >= FEWEST and len(rows) * 8 >= len(points) and not points.on_disk
    partition = Partition(points, int(1.5 * len(points) ** 0.5)) if worth_cells else None
    for dtype in (torch.float32, torch.float64):
        scores, final = Scores(points, dtype), dtype == torch.float64
        if len(rows) and (final or scores.trustworthy):
            turn = Turn(scores, k, memory, final)
            yield from turn.run(rows, partition)
            rows, partition = torch.cat([rows[:0], *turn.left]), turn.partition


class Turn:
    """One pass over some rows in one precision; ``left`` gathers the rows that it could not prove right."""

    def __init__(self, scores: Scores, k: int, memory: int, final: bool) -> None:
        self.scores, self.k, self.memory, self.final = scores, k, memory, final
        self.left: list[Tensor] = []
        self.partition: Partition | None = None
        self.size = block_rows(scores, memory)
        self.seen = self.refused = 0

    def run(self, rows: Tensor, partition: Partition | None) -> Iterator[Near]:
        """Search cell by cell as long as this helps, and then through all points."""
        self.partition = partition
        if partition is not None:
            plain: list[Tensor] = [rows[:0]]
            yield from self._cells(rows, Pruned(self.scores, partition, self.k, self.memory), plain)
            rows = torch.cat(plain)
        yield from self._all(rows)

    def _cells(self, rows: Tensor, search: Pruned, plain: list[Tensor]) -> Iterator[Near]:
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
                found = settle(self.scores, block, part, least, self.scores.tile, every, self.k, self.final)
                yield from self._noted(block, *found)

    def _noted(self, block: Tensor, found: list[Near], rest: Tensor) -> list[Near]:
        self.seen, self.refused = self.seen + len(block), self.refused + len(rest)
        self.left.append(rest)
        return found

    def _hopeless(self, block: Tensor) -> bool:
        """Whether most rows so far had no proof; then this block is left to the next pass without a try."""
        if self.final or self.refused * 2 <= self.seen:
            return False
        self.left.append(block)
        return True


def block_rows(scores: Scores, memory: int) -> int:
    """How many queries are worked on at once."""
    return int(min(ROWS, max(1, memory // (2 * scores.width * torch.finfo(scores.dtype).bits // 8))))
