"""Points for a mixture: checked, merged if equal and standardized; and their spacing."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mindgap.core import InputError

QUERIES = 1024  # points whose nearest other point is searched
BLOCK = 2**24  # entries of a block of distances


class Design(NamedTuple):
    """Distinct points, standardized, with weights that sum to one.

    Attributes:
        rows: Points in standard deviations of each feature.
        weights: Weights.
        center: Mean of each feature.
        scale: Standard deviation of each feature.
        size: Kish's effective number of the original rows, (Σw)² / Σw².
    """

    rows: Tensor
    weights: Tensor
    center: Tensor
    scale: Tensor
    size: float

    @property
    def weighted(self) -> tuple[Tensor, Tensor]:
        """The points of positive weight, which alone enter the likelihood, and their weights."""
        positive = self.weights > 0
        return self.rows[positive], self.weights[positive]


def as_rows(points: Any, name: str = "points", dimension: int | None = None) -> Tensor:
    """Convert points to a table of finite numbers in double precision, one row per point.

    Args:
        points: Anything that holds numbers.
        name: The argument's name, for the message.
        dimension: Number of features that is required, if known.

    >>> as_rows([[1, 2]]).dtype
    torch.float64
    """
    rows = as_numbers(points, name)
    wanted = f"a table (points, {'features' if dimension is None else dimension})"
    if rows.ndim != 2 or rows.shape[1] != (dimension or max(1, rows.shape[1])):
        raise InputError(
            f"{name} must be {wanted}, got shape {tuple(rows.shape)}. Give every point a row."
        )
    if not bool(rows.isfinite().all()):
        bad = int((~rows.isfinite()).sum())
        raise InputError(
            f"{name} must be finite, got {bad} of {rows.numel()} that are not. Remove these points."
        )
    return rows


def as_numbers(values: Any, name: str) -> Tensor:
    """Convert anything that holds numbers to a tensor in double precision."""
    try:
        return torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} must be numbers, got {type(values).__name__}. Pass a tensor or an array."
        ) from error


def design(points: Any, weights: Any = None) -> Design:
    """Merge equal points, adding their weights, and standardize each feature.

    A point repeated three times therefore equals a point of weight three. The standard deviation is
    that of the distinct points without weights, so that it depends on their positions only.

    Args:
        points: One row per point.
        weights: One number of at least 0 per point; all ones if None.

    >>> design([[0.0], [2.0], [2.0]]).weights
    tensor([0.3333, 0.6667], dtype=torch.float64)
    """
    table = as_rows(points) + 0.0  # minus zero is zero
    weight = _weights(weights, len(table))
    rows, owner = torch.unique(table, dim=0, return_inverse=True)
    joined = torch.zeros(len(rows), dtype=torch.float64).index_add(0, owner, weight)
    center = rows.mean(0)
    scale = (rows - center).square().mean(0).sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    size = float(weight.sum().square() / weight.square().sum())
    return Design((rows - center) / scale, joined / joined.sum(), center, scale, size)


def _weights(weights: Any, count: int) -> Tensor:
    if count == 0:
        raise InputError("points must hold at least one point, got none. Pass more points.")
    if weights is None:
        return torch.ones(count, dtype=torch.float64)
    values = as_numbers(weights, "weights")
    if values.shape != (count,):
        raise InputError(
            f"weights must be one number for each of {count} points, got shape "
            f"{tuple(values.shape)}. Pass {count}."
        )
    if not bool((values.isfinite() & (values >= 0)).all()):
        raise InputError(
            f"weights must be finite numbers of at least 0, got {float(values.min()):g} to "
            f"{float(values.max()):g}. Clip them or remove these points."
        )
    if not bool((values > 0).any()):
        raise InputError(
            "weights must hold a number above 0, got only zeros. Pass None for equal weights."
        )
    return values / values.max()  # neither the sum nor a square may overflow


def spacing(rows: Tensor, weights: Tensor) -> float:
    """Compute the weighted median of the distance from a point to the nearest other one.

    Of many points 1024 are taken, at equal steps of the cumulative weight. Points of weight zero
    count as neighbors: a heavy point among weightless ones is not isolated.

    Args:
        rows: Distinct points.
        weights: Their weights.

    >>> spacing(torch.tensor([[0.0], [1.0], [3.0], [10.0]]), torch.tensor([1.0, 1.0, 1.0, 0.1]))
    1.0
    """
    steps = (torch.arange(QUERIES, dtype=torch.float64) + 0.5) / QUERIES
    total = weights.double().cumsum(0)
    queries, copies = torch.searchsorted(total, steps * total[-1]).unique(return_counts=True)
    parts = [_nearest(rows[block], rows) for block in queries.split(max(1, BLOCK // len(rows)))]
    return float(torch.cat(parts).repeat_interleave(copies).median())


def _nearest(some: Tensor, rows: Tensor) -> Tensor:
    distance = torch.cdist(some, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.masked_fill_(distance == 0, torch.inf).amin(1)
