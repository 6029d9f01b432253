"""Searches by other packages: a k-d tree (few dimensions), an inverted file (many points).

Both only propose candidates. Distances and ties are computed as in the exact search; the tree also
gives the same proof, while the recall of the inverted file is measured.
"""

import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mindgap.core import require
from mindgap.ops.neighbors.exact import exact_blocks
from mindgap.ops.neighbors.points import BLOCK, UNIT, Points, rows_of
from mindgap.ops.neighbors.scores import Near, joined, kept, kth_square

TRIES = 3  # queries of the tree, each for four times as many candidates
QUERIES = 4096  # rows that the index is asked for at once
SAMPLE = 1024  # points whose exact neighbors the recall is measured on


def check_installed(method: str) -> None:
    """Refuse a method whose package is missing, before any work is done.

    Args:
        method: The method that was asked for.

    >>> check_installed("exact")
    """
    if method == "approximate":
        require("faiss", "neighbors")


def tree_blocks(points: Points, rows: Tensor, k: int, memory: int) -> Iterator[Near]:
    """Yield the neighbors of ``rows``, block after block.

    A row whose ties may extend beyond its candidates asks for more of them. After ``TRIES`` queries
    the exact search takes over.
    """
    from scipy.spatial import cKDTree  # slow to import

    coordinates = points.centered(points.rows).numpy()
    tree = cKDTree(coordinates)
    wide = min(k + max(4, k // 4), len(points))
    for _ in range(TRIES):
        left, size = [rows[:0]], max(1, memory // (16 * wide * points.rows.shape[1]))
        for block in rows.split(size) if len(rows) else ():
            distance, index = tree.query(coordinates[block.numpy()], k=range(1, wide + 1))
            found, rest = _certified(
                points, block, torch.from_numpy(distance), torch.from_numpy(index), k
            )
            yield found
            left.append(rest)
        rows, wide = torch.cat(left), min(4 * wide, len(points))
    if len(rows):
        yield from exact_blocks(points, rows, k, memory)


def _certified(
    points: Points, rows: Tensor, distance: Tensor, index: Tensor, k: int
) -> tuple[Near, Tensor]:
    square = points.squares(rows, index)
    kth = kth_square(points, index, square, k)
    # The tree works on centered rows, whose rounding moves a distance by up to ``rounded``. A row
    # is proved only if the last candidate, made nearer by all that rounding may have added, still
    # lies beyond the k-th distance and its ties.
    rounded = 8 * UNIT * points.reach
    nearest_left_out = distance[:, -1] * (1 - (len(points.center) + 8) * UNIT) - rounded
    sure = nearest_left_out > (kth + points.ties(kth)).sqrt() * (1 + 4 * UNIT)
    if index.shape[1] == len(points):
        sure[:] = True
    return kept(points, rows[sure], index[sure], square[sure], kth[sure]), rows[~sure]


def faiss_installed() -> bool:
    """Check whether faiss, which has the inverted file, is installed."""
    return importlib.util.find_spec("faiss") is not None


class Approximate:
    """An inverted file that probes as many lists as the wanted recall needs.

    Candidates come from the index; their distances, order and ties are exact. ``recall`` is the
    share of the exact neighbors (ties included) that is found for ``SAMPLE`` random points.

    Args:
        points: The points to search.
        k: Number of neighbors, the point itself included.
        memory: Bytes that a block of exact distances may take.
        recall: Share of the true neighbors to reach; the number of probes doubles until it does.
        seed: Seed of the index and of the sample.
    """

    def __init__(self, points: Points, k: int, memory: int, recall: float, seed: int) -> None:
        self.points, self.k, self.memory = points, k, memory
        self.index = _index(points, seed)
        sample = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))[:SAMPLE]
        truth = joined(list(exact_blocks(points, sample, k, memory)))
        self.recall = 0.0
        while True:
            self.recall = _recall(joined(list(self.blocks(truth.rows))), truth)
            if self.recall >= recall or self.index.nprobe >= self.index.nlist:
                break
            self.index.nprobe = min(2 * self.index.nprobe, self.index.nlist)

    def search(self, rows: Tensor) -> Iterator[Near]:
        """Yield the neighbors of ``rows``; rows with too few candidates are searched exactly."""
        wide = min(self.k + max(4, self.k // 4), len(self.points))
        _, found = self.index.search(
            self.points.centered(self.points.rows[rows]).float().numpy(), wide
        )
        index = torch.from_numpy(found)
        square = self.points.squares(rows, index.clamp_min(0)).masked_fill(index < 0, torch.inf)
        kth = kth_square(self.points, index.clamp_min(0), square, self.k)
        full = kth.isfinite()
        yield kept(self.points, rows[full], index[full], square[full], kth[full])
        if not full.all():
            yield from exact_blocks(self.points, rows[~full], self.k, self.memory)

    def blocks(self, rows: Tensor) -> Iterator[Near]:
        """Yield the neighbors of ``rows``, block after block."""
        for block in rows.split(QUERIES):
            yield from self.search(block)


def _index(points: Points, seed: int) -> Any:
    faiss = require("faiss", "neighbors")
    lists = max(1, int(2 * len(points) ** 0.5))
    dimension = points.rows.shape[1]
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dimension), dimension, lists)
    index.cp.seed, index.cp.max_points_per_centroid, index.cp.niter = seed, 64, 10
    some = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))[: 64 * lists]
    index.train(points.centered(points.rows[some.sort().values]).float().numpy())
    for block in points.rows.split(BLOCK):
        index.add(points.centered(block).float().numpy())
    index.nprobe = min(8, lists)
    return index


def _recall(found: Near, truth: Near) -> float:
    """Compute the share of the true pairs (row, point) that were found."""
    size = int(truth.index.max()) + int(found.index.max()) + 1
    pairs = [rows_of(near.start) * size + near.index for near in (found, truth)]
    return float(torch.isin(pairs[1], pairs[0]).double().mean())
