"""The k nearest neighbors of every sample, ties included, by the fastest method."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from mindgap.core import InputError, Progress
from mindgap.ops.neighbors import backends
from mindgap.ops.neighbors.exact import exact_blocks
from mindgap.ops.neighbors.points import Metric, Points, as_points, entries, rows_of, starts
from mindgap.ops.neighbors.scores import Near, joined
from mindgap.ops.neighbors.source import read

Method = Literal["auto", "exact", "tree", "approximate"]
METHODS = ("auto", "exact", "tree", "approximate")
TREE_DIMENSION = 8  # measured: benchmarks/neighbors.py --switch
APPROXIMATE_SIZE = 1_000_000  # measured there too: up to about here, exact search is as fast
MEMORY = 2**28


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The neighbors of each of n samples, the sample itself included, in lists laid end to end.

    Every sample at the k-th distance is listed, so a list may be longer than k.

    Attributes:
        start: The neighbors of sample i are the entries ``start[i]`` to ``start[i + 1]``.
        index: Neighbors, nearest first.
        square: Squared distances.
        method: The method that found them.
        recall: Share of the true neighbors that were found: 1 if exact, else measured on a sample.
    """

    start: Tensor
    index: Tensor
    square: Tensor
    method: str
    recall: float

    def __getitem__(self, sample: int) -> Tensor:
        """Return the neighbors of one sample."""
        return self.index[self.start[sample] : self.start[sample + 1]]


def nearest(
    features: Any,
    k: int,
    *,
    metric: Metric = "euclidean",
    standardize: bool = False,
    method: Method = "auto",
    memory: int = MEMORY,
    progress: bool = False,
) -> Neighbors:
    """Find the k nearest samples of every sample.

    Distances are direct differences in double precision, also if the features are in single
    precision, far from zero or of unequal scale. Distances that differ by no more than eight times
    their rounding error are equal. Equal rows have no precedence over each other: with k or more
    copies of a row, all copies are listed.

    Args:
        features: Array, tensor or memory map with one row per sample, or chunks of rows.
        k: Number of neighbors, from 2 to n; the sample itself counts, at distance zero.
        metric: ``"euclidean"`` or ``"cosine"``.
        standardize: Divide every feature by its standard deviation.
        method: ``"exact"`` (matrix products), ``"tree"`` (exact, for few dimensions),
            ``"approximate"`` (for millions of samples) or ``"auto"``.
        memory: Bytes that a block of distances may take.
        progress: Show a progress bar.

    >>> found = nearest(torch.tensor([[0.0], [1.0], [3.0], [-1.0]]), k=2)
    >>> [found[i].tolist() for i in range(4)]
    [[0, 1, 3], [1, 0], [2, 1], [3, 0]]
    """
    table, _, on_disk = read(features, None, needs_labels=False)
    check_k(k, len(table))
    points = as_points(table, None, metric=metric, standardize=standardize, on_disk=on_disk)
    search = Search(points, k, method, memory)
    near = joined(list(search.blocks(progress=progress)))
    return _of_samples(points, near, search)


def check_k(k: int, samples: int) -> None:
    """Raise unless there are at least two samples and k is from 2 to their number.

    Args:
        k: Number of neighbors, the sample itself included.
        samples: Number of samples.
    """
    if samples < 2:
        raise InputError(
            f"Neighbors need at least 2 samples, got {samples} sample. Pass more data."
        )
    if isinstance(k, bool) or not hasattr(k, "__index__") or not 2 <= k <= samples:
        raise InputError(
            f"k must be an integer from 2 to {samples} (the number of samples), got {k!r}. Lower k "
            "or pass more data."
        )


class Search:
    """A search for the neighbors of points by one method, with its recall.

    Args:
        points: The points to search.
        k: Number of neighbors, the point itself included.
        method: ``"exact"``, ``"tree"``, ``"approximate"`` or ``"auto"``.
        memory: Bytes that a block of distances may take.
        recall: Share of the true neighbors that an approximate search must find.
        seed: Seed of an approximate index.
    """

    def __init__(
        self,
        points: Points,
        k: int,
        method: Method = "auto",
        memory: int = MEMORY,
        recall: float = 0.9999,
        seed: int = 0,
    ) -> None:
        if method not in METHODS:
            raise InputError(
                f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}. Choose "
                "one."
            )
        backends.check_installed(method)
        self.points, self.k, self.memory = points, int(k), memory
        self.method = chosen(len(points), points.rows.shape[1]) if method == "auto" else method
        self.recall, self.index = 1.0, None
        if self.method == "approximate":
            self.index = backends.Approximate(points, self.k, memory, recall, seed)
            self.recall = self.index.recall

    def blocks(self, rows: Tensor | None = None, progress: bool = False) -> Iterator[Near]:
        """Yield the neighbors of ``rows`` (or all points) in blocks, in no particular order."""
        rows = torch.arange(len(self.points)) if rows is None else rows
        with Progress(len(rows), title="neighbors", unit="point", shown=progress) as bar:
            for near in self._blocks(rows):
                yield near
                bar.advance(by=len(near.rows))

    def _blocks(self, rows: Tensor) -> Iterator[Near]:
        if self.index is not None:
            return self.index.blocks(rows)
        find = backends.tree_blocks if self.method == "tree" else exact_blocks
        return find(self.points, rows, self.k, self.memory)


def chosen(count: int, dimension: int) -> Method:
    """Choose the fastest installed method for so many points in so many dimensions.

    >>> chosen(50_000, 64)
    'exact'
    """
    if dimension <= TREE_DIMENSION:
        return "tree"
    return "approximate" if count > APPROXIMATE_SIZE and backends.faiss_installed() else "exact"


def _of_samples(points: Points, near: Near, search: Search) -> Neighbors:
    """Turn lists of points into lists of samples, in the order of the samples."""
    owner = points.table.owner
    pairs = entries(near.start, owner)
    row = rows_of(starts(near.start.diff()[owner]))
    copies = points.count[near.index[pairs]]
    row, square = (
        torch.repeat_interleave(row, copies),
        torch.repeat_interleave(near.square[pairs], copies),
    )
    index = points.table.member[entries(points.table.start, near.index[pairs])]
    order = index.argsort()
    order = order[square[order].argsort(stable=True)]
    order = order[row[order].argsort(stable=True)]
    start = starts(torch.bincount(row, minlength=len(owner)))
    return Neighbors(start, index[order], square[order], search.method, search.recall)
