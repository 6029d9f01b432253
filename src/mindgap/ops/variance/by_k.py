"""Local variance for many numbers of neighbors at once, and at points that are not samples."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import InputError
from mindgap.ops.neighbors.points import as_points, rows_of
from mindgap.ops.neighbors.scores import kept_of_pairs
from mindgap.ops.neighbors.search import MEMORY, Search, check_k
from mindgap.ops.variance.local import Task, is_classes
from mindgap.ops.variance.moments import Classes, Values

MARGIN = 0.06  # of the samples' range, left free on every side of a grid


class VarianceByK:
    """The local variance of every sample for any k up to ``largest``, from one search.

    The neighbors of a smaller k are the nearest of those found; ties are treated as in
    :func:`mindgap.ops.variance.local.local_variance`.

    Args:
        features: One row per sample.
        labels: Classes or values.
        largest: Largest k that will be asked for.
        task: What the labels are; ``"auto"`` decides from their type.
        standardize: Divide each feature by its standard deviation.
        progress: Show a progress bar.

    >>> by_k = VarianceByK(
    ...     torch.tensor([[0.0], [1.0], [2.0], [9.0]]), torch.tensor([0, 0, 1, 1]), largest=3
    ... )
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
        self.labels = (
            Classes(self.points, labels.reshape(-1)) if classes else Values(self.points, labels)
        )
        self.blocks = list(Search(self.points, largest, "auto").blocks(progress=progress))
        self._known: dict[int, Tensor] = {}

    def __call__(self, k: int) -> Tensor:
        """Compute the variance of each sample's k nearest labels."""
        check_k(k, self.largest)
        if k not in self._known:
            self._known[k] = self._variance(k)
        return self._known[k]

    def _variance(self, k: int) -> Tensor:
        variance = torch.empty(len(self.points), dtype=torch.float64)
        for near in self.blocks:
            fewer = kept_of_pairs(
                self.points, near.rows, rows_of(near.start), near.index, near.square, k
            )
            variance[near.rows] = self.labels.moments(fewer).expected_variance(k)
        return variance[self.points.table.owner]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A grid over the plane: the coordinates of its vertical and horizontal lines."""

    x: Tensor
    y: Tensor

    @property
    def nodes(self) -> Tensor:
        """All nodes (x, y), one per row, line by line from below."""
        y, x = torch.meshgrid(self.y, self.x, indexing="ij")
        return torch.stack([x.flatten(), y.flatten()], dim=1)

    def rows(self, values: Tensor) -> Tensor:
        """Arrange one value per node as a table of rows (y) and columns (x)."""
        return values.reshape(len(self.y), len(self.x))


def grid_over(points: Tensor, cells: int) -> Grid:
    """Lay a grid of ``cells`` by ``cells`` lines over points of the plane, with a margin.

    Args:
        points: Points (n, 2) to cover.
        cells: Number of lines in each direction.

    >>> grid_over(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), 3).x
    tensor([-0.0600,  0.5000,  1.0600], dtype=torch.float64)
    """
    if points.ndim != 2 or points.shape[1] != 2:
        raise InputError(
            f"A grid must lie over points of the plane, got shape {tuple(points.shape)}. Pass (n, "
            "2)."
        )
    low, high = points.double().amin(0), points.double().amax(0)
    margin = torch.where(high > low, MARGIN * (high - low), torch.ones_like(low))
    low, high = low - margin, high + margin
    x, y = (
        torch.linspace(float(low[k]), float(high[k]), cells, dtype=torch.float64) for k in (0, 1)
    )
    return Grid(x, y)


def variance_at(
    points: Tensor,
    features: Tensor,
    labels: Tensor,
    *,
    k: int,
    task: Task = "auto",
    memory: int = MEMORY,
) -> Tensor:
    r"""Compute the variance of the labels of the k samples nearest to each point.

    .. math:: v(x) = \frac{1}{k-1} \sum_{j \in S_k(x)} \Big\| y_j - \frac1k \sum_{l \in S_k(x)} y_l \Big\|^2

    At a sample it equals :func:`mindgap.ops.variance.local.local_variance`, except that one choice
    is made among ties. Distances are Euclidean, in double precision; classes are one-hot.

    Args:
        points: Where to evaluate, one row per point.
        features: The samples, one row each.
        labels: Their classes or values.
        k: Number of neighbors.
        task: What the labels are; ``"auto"`` decides from their type.
        memory: Bytes that a block of distances may take.

    >>> x, y = torch.tensor([[0.0], [1.0], [2.0], [9.0]]), torch.tensor([0, 0, 1, 1])
    >>> variance_at(torch.tensor([[0.4], [1.6]]), x, y, k=2).tolist()
    [0.0, 1.0]
    """
    check_k(k, len(features))
    table, rows = features.detach().double().flatten(1), _rows(labels, task)
    block = max(1, memory // (8 * len(table)))
    exact = "donot_use_mm_for_euclid_dist"
    parts = [
        rows[
            torch.cdist(some, table, compute_mode=exact)
            .topk(k, largest=False, sorted=False)
            .indices
        ]
        for some in points.detach().double().flatten(1).split(block)
    ]
    return torch.cat([part.var(1).sum(1) for part in parts])


def _rows(labels: Tensor, task: Task) -> Tensor:
    if not is_classes(labels, task):
        return labels.detach().double().reshape(len(labels), -1)
    numbers = labels.reshape(-1).unique(return_inverse=True)[1]
    return torch.nn.functional.one_hot(numbers).double()
