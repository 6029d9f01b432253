"""Points for a mixture: checked, equal ones joined, in units of their spread, and how far apart they lie."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mindgap.core import InputError

QUERIES = 1024
BLOCK = 2**24  # numbers of a block of distances or differences


class Design(NamedTuple):
    """Different points in standard deviations of each feature, with weights that sum to one.

    ``size`` is Kish's effective number of the rows as they came, :math:`(\\sum w)^2 / \\sum w^2`.
    """

    rows: Tensor
    weights: Tensor
    center: Tensor
    scale: Tensor
    size: float

    @property
    def weighted(self) -> tuple[Tensor, Tensor]:
        """The points of positive weight, which alone have a likelihood, and their weights."""
        positive = self.weights > 0
        return self.rows[positive], self.weights[positive]


def as_rows(points: Any, name: str = "points", dimension: int | None = None) -> Tensor:
    """A table of finite numbers in double precision, one row per point.

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
    """A tensor in double precision from whatever holds numbers."""
    try:
        return torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} must be numbers, got {type(values).__name__}. Pass a tensor or an array."
        ) from error


def design(points: Any, weights: Any = None) -> Design:
    """Join equal points, adding up their weights, and measure each feature in its standard deviation.

    A point repeated three times and a point of weight three are therefore the same. The unit is the
    standard deviation of the different points, whatever they weigh: it belongs to the layout of the
    points.
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
            f"{float(values.max()):g}. "
            "Clip them or remove these points."
        )
    if not bool((values > 0).any()):
        raise InputError(
            "weights must hold a number above 0, got zeros alone. Pass None to weigh all points "
            "alike."
        )
    return values / values.max()  # neither the sum nor a square may overflow


def spacing(rows: Tensor, weights: Tensor) -> float:
    """The weighted median of the distance from a point to the nearest other one.

    Of many points 1024 are asked, at equal steps of the cumulated weight, about all others. Points
    of zero weight are asked nothing, but they are neighbors: a heavy point amid weightless ones is
    not alone.

    >>> spacing(torch.tensor([[0.0], [1.0], [3.0], [10.0]]), torch.tensor([1.0, 1.0, 1.0, 0.1]))
    1.0
    """
    steps = (torch.arange(QUERIES, dtype=torch.float64) + 0.5) / QUERIES
    total = weights.double().cumsum(0)
    asked, copies = torch.searchsorted(total, steps * total[-1]).unique(return_counts=True)
    parts = [_nearest(rows[block], rows) for block in asked.split(max(1, BLOCK // len(rows)))]
    return float(torch.cat(parts).repeat_interleave(copies).median())


def _nearest(some: Tensor, rows: Tensor) -> Tensor:
    distance = torch.cdist(some, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.masked_fill_(distance == 0, torch.inf).amin(1)
