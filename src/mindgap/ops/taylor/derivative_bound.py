"""A bound on the squared error of a model of one input, from slopes at the samples."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, implements


@dataclasses.dataclass(frozen=True)
class Cells:
    """One cell of the interval per sample.

    Attributes:
        left: Distance from the sample to the left end of its cell.
        right: Distance to the right end.
        share: 1 / n for each of n equal samples, which share a cell.
    """

    left: Tensor
    right: Tensor
    share: Tensor

    def moment(self, power: int) -> Tensor:
        """Integrate |x - X|^power over each cell.

        >>> Cells(torch.tensor([1.0]), torch.tensor([2.0]), torch.ones(1)).moment(2).tolist()
        [3.0]
        """
        return self.share * (self.left ** (power + 1) + self.right ** (power + 1)) / (power + 1)

    def published_moment(self) -> Tensor:
        """Compute the paper's |S|³/3 in place of the second moment."""
        return self.share * (self.left + self.right) ** 3 / 3


def voronoi_cells(points: Any, low: float, high: float) -> Cells:
    """Divide [low, high] into the parts that are nearest to each sample.

    Args:
        points: Samples in [low, high]; equal ones share their cell.
        low: Left end of the interval.
        high: Right end.

    >>> cells = voronoi_cells([0.0, 1.0, 0.2], 0.0, 1.0)
    >>> [round(value, 3) for value in cells.moment(0).tolist()]
    [0.1, 0.4, 0.5]
    """
    values = torch.as_tensor(points, dtype=torch.float64).flatten()
    if (
        not low < high
        or not len(values)
        or bool((values < low).any())
        or bool((values > high).any())
    ):
        raise InputError(
            f"points must lie in [low, high] with low below high, got {len(values)} points and "
            f"[{low}, {high}]. Widen the interval."
        )
    distinct, owner, copies = values.unique(return_inverse=True, return_counts=True)
    middle = (distinct[1:] + distinct[:-1]) / 2
    ends = torch.cat([values.new_tensor([low]), middle, values.new_tensor([high])])
    left, right = distinct - ends[:-1], ends[1:] - distinct
    return Cells(left[owner], right[owner], 1 / copies[owner].double())


@implements("V1", cites=("novello2020variance",))
def derivative_bound(
    points: Any,
    slopes: Any,
    lipschitz: float,
    *,
    low: float,
    high: float,
    residuals: Any = 0.0,
    curvature: float = 0.0,
    cells: Cells | None = None,
    as_published: bool = False,
) -> Tensor:
    r"""Bound the integrated squared error of a model of one input, sample by sample.

    Formula: $\int (f - f_\theta)^2 dx \le \sum_i (|f'(X_i)| + K)^2 \int_{S_i} |x - X_i|^2 dx$

    Reading: The sum over the samples is the bound. A sample with a large share lies where the
    function is steep or its cell is wide: sample more there.

    Assumes: A model that is K-Lipschitz. Without ``residuals`` and ``curvature`` the model must fit
    every sample, and the inequality holds up to terms of fourth order in the cells.

    With the residual e at a sample and |f''| at most C it holds without further terms:

    .. math:: |f(x) - f_\theta(x)| \le e + (|f'(X)| + K)\, r + \tfrac{C}{2} r^2, \qquad r = |x - X|,

    whose square integrates over a cell [X - a, X + b] to a polynomial in a and b. With e = C = 0
    the integral is :math:`(a^3 + b^3)/3`.

    Args:
        points: Samples X.
        slopes: Derivatives f'(X) of the function.
        lipschitz: Lipschitz constant K of the model.
        low: Left end of the interval.
        high: Right end.
        residuals: Errors e of the model at the samples.
        curvature: A bound C on |f''|.
        cells: Cells of the samples; Voronoi cells if None.
        as_published: Use the paper's :math:`|S|^3/3` for the integral, which is never smaller.

    Doubling the number of samples divides the bound by about four:

    >>> few, many = (
    ...     derivative_bound(torch.linspace(0, 1, n), torch.ones(n), 1.0, low=0.0, high=1.0).sum()
    ...     for n in (101, 201)
    ... )
    >>> round(float(few / many), 1)
    4.0
    """
    values = torch.as_tensor(points, dtype=torch.float64).flatten()
    slope = torch.as_tensor(slopes, dtype=torch.float64).flatten().abs()
    missed = torch.as_tensor(residuals, dtype=torch.float64).abs().expand(len(values))
    if len(slope) != len(values) or not lipschitz >= 0 or not curvature >= 0:
        raise InputError(
            "Every point must have a slope, and lipschitz and curvature must be at least 0, got "
            f"{len(values)} points, {len(slope)} slopes, {lipschitz} and {curvature}. Correct them."
        )
    found = cells or voronoi_cells(values, low, high)
    growth = slope + lipschitz
    square = found.published_moment() if as_published else found.moment(2)
    return (
        missed**2 * found.moment(0)
        + 2 * missed * growth * found.moment(1)
        + (growth**2 + missed * curvature) * square
        + growth * curvature * found.moment(3)
        + curvature**2 / 4 * found.moment(4)
    )
