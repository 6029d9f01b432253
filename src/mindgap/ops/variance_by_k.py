"""Local variance for many numbers of neighbours from one search."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.ops.nearest.moments import Classes, Values
from mindgap.ops.nearest.near import kept_of_pairs
from mindgap.ops.nearest.points import as_points
from mindgap.ops.nearest.ragged import rows_of
from mindgap.ops.neighbors import Search, check_k
from mindgap.ops.variance import Task, is_classes


class VarianceByK:
    """The variance of :func:`mindgap.ops.variance.local_variance` for every k up to ``largest``.

    The neighbours are searched once; those of a smaller k are the nearest of them, ties treated alike.

    >>> by_k = VarianceByK(torch.tensor([[0.0], [1.0], [2.0], [9.0]]), torch.tensor([0, 0, 1, 1]), largest=3)
    >>> by_k(2).tolist()
    [0.0, 0.5, 1.0, 0.0]
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        largest: int,
        *,
        task: Task = "auto",
        standardize: bool = False,
        progress: bool = False,
    ) -> None:
        check_k(largest, len(features))
        self.largest = largest
        self.points = as_points(features, labels, metric="euclidean", standardize=standardize)
        classes = is_classes(labels, task)
        self.labels = Classes(self.points, labels.reshape(-1)) if classes else Values(self.points, labels)
        self.blocks = list(Search(self.points, largest, "auto").blocks(progress=progress))
        self._known: dict[int, Tensor] = {}

    def __call__(self, k: int) -> Tensor:
        """The variance of each sample's k nearest labels."""
        check_k(k, self.largest)
        if k not in self._known:
            self._known[k] = self._variance(k)
        return self._known[k]

    def _variance(self, k: int) -> Tensor:
        variance = torch.empty(len(self.points), dtype=torch.float64)
        for near in self.blocks:
            fewer = kept_of_pairs(self.points, near.rows, rows_of(near.start), near.index, near.square, k)
            variance[near.rows] = self.labels.moments(fewer).expected_variance(k)
        return variance[self.points.table.owner]
