"""The k nearest neighbors of every sample, ties included: exact by default, whatever the scale of the features."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from mindgap.core import InputError, Progress
from mindgap.ops.neighbors import backends
from mindgap.ops.neighbors.exact import exact_blocks
from mindgap.ops.neighbors.points import Metric, Points, as_points, places, rows_of, starts
from mindgap.ops.neighbors.scores import Near, joined
from mindgap.ops.neighbors.source import read

Method = Literal["auto", "exact", "tree", "approximate"]
METHODS = ("auto", "exact", "tree", "approximate")
TREE_DIMENSION = 8  # measured: benchmarks/neighbors.py --switch
APPROXIMATE_SIZE = (
    1_000_000  # measured there too: exact search is as quick up to about so many points
)
MEMORY = 2**28


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The neighbors of each of n samples, itself among them, in lists laid end to end.

    Sample i's neighbors are ``index[start[i]:start[i + 1]]``, nearest first. Every sample at the
    k-th distance is listed, so a list may be longer than k. ``square`` holds squared distances.
    """

    start: Tensor
    index: Tensor
    square: Tensor
    method: str
    recall: float

    def __getitem__(self, sample: int) -> Tensor:
        """The neighbors of one sample."""
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
    """The k nearest samples of every sample; k counts the sample itself, at distance zero.

    Distances are those of double precision by direct differences, also when features are in single
    precision, far from zero or of unequal scale. Distances that differ by no more than eight times
    their rounding error are equal. Equal rows have no precedence over each other: with k or more
    copies of a row, all copies are listed.

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
    """Raise unless k can be served."""
    if samples < 2:
        raise InputError(
            f"Neighbors need at least 2 samples, got {samples} sample. Pass more data."
        )
    if isinstance(k, bool) or not hasattr(k, "__index__") or not 2 <= k <= samples:
        raise InputError(
            f"k must be an integer from 2 to {samples} (the number of samples), got {k!r}. Lower "
            "k or pass more data."
        )


class Search:
    """A chosen way to find the neighbors of some points, and the recall it is known to have."""

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
        self.points, self.k, self.memory = points, int(k), memory
        self.method = chosen(len(points), points.rows.shape[1]) if method == "auto" else method
        self.recall, self.index = 1.0, None
        if self.method == "approximate":
            self.index = backends.Approximate(points, self.k, memory, recall, seed)
            self.recall = self.index.recall

    def blocks(self, rows: Tensor | None = None, progress: bool = False) -> Iterator[Near]:
        """The neighbors of ``rows`` (or all points), block after block, in no particular order."""
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
    """The quickest method that is installed: a tree in few dimensions, an inverted file for millions of points.

    >>> chosen(50_000, 64)
    'exact'
    """
    if dimension <= TREE_DIMENSION and backends.tree_installed():
        return "tree"
    return "approximate" if count > APPROXIMATE_SIZE and backends.faiss_installed() else "exact"


def _of_samples(points: Points, near: Near, search: Search) -> Neighbors:
    """Lists of points made lists of samples, in the order of the samples."""
    owner = points.table.owner
    pairs = places(near.start, owner)
    row = rows_of(starts(near.start.diff()[owner]))
    copies = points.count[near.index[pairs]]
    row, square = (
        torch.repeat_interleave(row, copies),
        torch.repeat_interleave(near.square[pairs], copies),
    )
    index = points.table.member[places(points.table.start, near.index[pairs])]
    order = index.argsort()
    order = order[square[order].argsort(stable=True)]
    order = order[row[order].argsort(stable=True)]
    start = starts(torch.bincount(row, minlength=len(owner)))
    return Neighbors(start, index[order], square[order], search.method, search.recall)
