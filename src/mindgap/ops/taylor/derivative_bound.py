r"""How far a model can be from a function of one input, given the function's slope at the samples.

A sample X with cell [X - a, X + b] answers for all x in it. If the model is K-Lipschitz, the
function has the slope f'(X) at X and a second derivative of at most C, and the model misses the
sample by e, then

.. math:: |f(x) - f_\theta(x)| \le e + (|f'(X)| + K)\, r + \tfrac{C}{2} r^2, \qquad r = |x - X|,

and the square integrates over the cell to a polynomial in a and b. With e = C = 0 this is the
paper's bound, whose cell integral is :math:`(a^3 + b^3)/3`.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError


@dataclasses.dataclass(frozen=True)
class Cells:
    """Distances from each sample to the two ends of its cell; ``share`` is 1 / n for each of n copies of a sample."""

    left: Tensor
    right: Tensor
    share: Tensor

    def moment(self, power: int) -> Tensor:
        """The integral of |x - X|^power over each cell.

        >>> Cells(torch.tensor([1.0]), torch.tensor([2.0]), torch.ones(1)).moment(2).tolist()
        [3.0]
        """
        return self.share * (self.left ** (power + 1) + self.right ** (power + 1)) / (power + 1)

    def published_moment(self) -> Tensor:
        """The paper's |S|³/3 for the second moment."""
        return self.share * (self.left + self.right) ** 3 / 3


def voronoi_cells(points: Any, low: float, high: float) -> Cells:
    """The part of [low, high] that lies nearest to each sample; copies of a sample share its cell equally.

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
            f"[{low}, {high}]. "
            "Widen the interval."
        )
    distinct, place, copies = values.unique(return_inverse=True, return_counts=True)
    middle = (distinct[1:] + distinct[:-1]) / 2
    ends = torch.cat([values.new_tensor([low]), middle, values.new_tensor([high])])
    left, right = distinct - ends[:-1], ends[1:] - distinct
    return Cells(left[place], right[place], 1 / copies[place].double())


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
    r"""Each sample's share of the bound on :math:`\int (f - f_\theta)^2 dx`; the sum is the bound.

    ``slopes`` are f' at the samples and ``lipschitz`` bounds the model's slope. With the model's
    ``residuals`` at the samples and a bound on the ``curvature`` |f''| the inequality holds as it
    stands; without them it holds for a model that meets every sample, up to terms of fourth order
    in the cells. Cells are Voronoi cells unless given. ``as_published`` takes the paper's
    :math:`|S|^3/3` for the integral :math:`(a^3+b^3)/3`, which is never smaller.

    >>> float(derivative_bound([0.0], [1.0], 1.0, low=-1.0, high=1.0).sum())
    2.6666666666666665
    """
    values = torch.as_tensor(points, dtype=torch.float64).flatten()
    slope = torch.as_tensor(slopes, dtype=torch.float64).flatten().abs()
    missed = torch.as_tensor(residuals, dtype=torch.float64).abs().expand(len(values))
    if len(slope) != len(values) or not lipschitz >= 0 or not curvature >= 0:
        raise InputError(
            "Every point must have a slope, and lipschitz and curvature must be at least 0, got "
            f"{len(values)} points, "
            f"{len(slope)} slopes, {lipschitz} and {curvature}. Correct them."
        )
    found = cells or voronoi_cells(values, low, high)
    steep = slope + lipschitz
    square = found.published_moment() if as_published else found.moment(2)
    return (
        missed**2 * found.moment(0)
        + 2 * missed * steep * found.moment(1)
        + (steep**2 + missed * curvature) * square
        + steep * curvature * found.moment(3)
        + curvature**2 / 4 * found.moment(4)
    )
