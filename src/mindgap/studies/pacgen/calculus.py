"""Exact derivatives, up to the third, of functions of two variables at many points at once.

A function takes two tensors of the same shape, the first and the second coordinate of every point,
and returns its values in that shape. The value at a point must depend on that point alone.
"""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor, Tensor], Tensor]
# Directions tried for the norm of a third derivative; the grid misses at most (3π/360)²/2 = 0.04 %.
ANGLES = 180


@dataclasses.dataclass(frozen=True)
class Derivatives:
    """Derivatives of a function at n points.

    Args:
        value: The values, ``(n,)``.
        slope: The gradients, ``(n, 2)``.
        hessian: The Hessians, ``(n, 2, 2)``.
    """

    value: Tensor
    slope: Tensor
    hessian: Tensor

    @property
    def diagonal(self) -> Tensor:
        """The diagonals of the Hessians, ``(n, 2)``."""
        return self.hessian.diagonal(dim1=-2, dim2=-1)

    @property
    def trace(self) -> Tensor:
        """The traces of the Hessians, ``(n,)``."""
        return self.diagonal.sum(-1)


def derivatives(function: Function, places: Tensor) -> Derivatives:
    """Compute value, gradient and Hessian by automatic differentiation.

    Args:
        function: The function.
        places: The points, ``(n, 2)``.

    >>> found = derivatives(lambda x, y: x**2 * y, torch.tensor([[1.0, 2.0]]))
    >>> found.slope.tolist(), found.hessian.tolist()
    ([[4.0, 1.0]], [[[4.0, 2.0], [2.0, 0.0]]])
    """
    with torch.enable_grad():
        here = [number.clone().requires_grad_() for number in places.detach().unbind(-1)]
        value = function(*here)
        slopes = _by_both(value, here)
        rows = [row for slope in slopes for row in _by_both(slope, here)]
    parts = torch.stack([value, *slopes, *rows], -1).detach()
    return Derivatives(parts[:, 0], parts[:, 1:3], parts[:, 3:].unflatten(-1, (2, 2)))


def third_norm(function: Function, places: Tensor) -> Tensor:
    r"""Return the operator norm of the third derivative, :math:`\max_\theta |D^3 f(\theta^3)|`.

    Its maximum over a convex neighborhood is the Lipschitz constant of the Hessian there.

    Args:
        function: The function.
        places: The points, ``(n, 2)``.

    >>> cube = lambda x, y: (x + y) ** 3  # the norm is 6 · √2³, along the diagonal
    >>> round(third_norm(cube, torch.zeros(1, 2)).item(), 3)
    16.971
    """
    with torch.enable_grad():
        here = [number.clone().requires_grad_() for number in places.detach().unbind(-1)]
        slopes = _by_both(function(*here), here)
        pure = [_by_both(slope, here)[k] for k, slope in enumerate(slopes)]
        # In the order xxx, xxy, yyx, yyy.
        parts = [third.detach() for bend in pure for third in _by_both(bend, here)]
    angle = torch.arange(ANGLES, dtype=places.dtype, device=places.device) * (math.pi / ANGLES)
    cosine, sine = angle.cos(), angle.sin()
    form = torch.stack([cosine**3, 3 * cosine**2 * sine, 3 * cosine * sine**2, sine**3])
    return (torch.stack(parts, -1) @ form).abs().amax(-1)


def _by_both(value: Tensor, here: list[Tensor]) -> list[Tensor]:
    """Differentiate by both coordinates; points are independent, so one sum serves them all."""
    if not value.requires_grad:
        return [torch.zeros_like(value) for _ in here]
    found = torch.autograd.grad(value.sum(), here, create_graph=True, materialize_grads=True)
    return list(found)


def largest_within(
    values: Tensor, rows: Tensor, columns: Tensor, reach: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the largest entry of a map within a box around each of its points.

    Args:
        values: The map; ``values[i, j]`` belongs to the point (``rows[i]``, ``columns[j]``).
        rows: Coordinates of the rows.
        columns: Coordinates of the columns.
        reach: Half the extent of the box along an axis, from the coordinate on that axis.

    >>> axis = torch.tensor([0.0, 1.0, 2.0])
    >>> values = torch.tensor([[0.0, 0.0, 5.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> largest_within(values, axis, axis, lambda numbers: numbers / 2).tolist()
    [[0.0, 0.0, 5.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    across = (values[:, None, :] + _far(columns, reach).to(values)).amax(-1)
    return (across.T[:, None, :] + _far(rows, reach).to(values)).amax(-1).T


def _far(axis: Tensor, reach: Callable[[Tensor], Tensor]) -> Tensor:
    """Return zero for pairs of coordinates within reach of the first, else minus infinity."""
    near = (axis[:, None] - axis).abs() <= reach(axis)[:, None]
    return torch.where(near, 0.0, -math.inf)
