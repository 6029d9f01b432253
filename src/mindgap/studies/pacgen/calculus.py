"""Functions of two numbers, at many places at once: exact derivatives up to the third.

A function takes two tensors of one shape, the first and the second number of every place, and
returns its values in that shape; the value at a place may depend on that place alone.
"""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor, Tensor], Tensor]
ANGLES = 180  # directions tried for the norm of a third derivative; misses at most (3π/360)²/2 = 0.04 % of it


@dataclasses.dataclass(frozen=True)
class Derivatives:
    """Value (n), slope (n, 2) and Hessian (n, 2, 2) at n places."""

    value: Tensor
    slope: Tensor
    hessian: Tensor

    @property
    def diagonal(self) -> Tensor:
        """Second derivatives by one number each, (n, 2)."""
        return self.hessian.diagonal(dim1=-2, dim2=-1)

    @property
    def trace(self) -> Tensor:
        """Sum of the second derivatives, (n)."""
        return self.diagonal.sum(-1)


def derivatives(function: Function, places: Tensor) -> Derivatives:
    """Value, slope and Hessian at ``places`` (n, 2), exactly.

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
    r"""Operator norm of the third derivative at ``places``: :math:`\max_\theta |D^3 f(\theta, \theta, \theta)|`.

    The largest of it over a convex neighborhood is the Lipschitz constant of the Hessian there.

    >>> round(
    ...     third_norm(lambda x, y: (x + y) ** 3, torch.zeros(1, 2)).item(), 3
    ... )  # 6 · √2³, along the diagonal
    16.971
    """
    with torch.enable_grad():
        here = [number.clone().requires_grad_() for number in places.detach().unbind(-1)]
        slopes = _by_both(function(*here), here)
        pure = [_by_both(slope, here)[k] for k, slope in enumerate(slopes)]
        parts = [
            third.detach() for bend in pure for third in _by_both(bend, here)
        ]  # xxx, xxy, yyx, yyy
    angle = torch.arange(ANGLES, dtype=places.dtype, device=places.device) * (math.pi / ANGLES)
    cosine, sine = angle.cos(), angle.sin()
    form = torch.stack([cosine**3, 3 * cosine**2 * sine, 3 * cosine * sine**2, sine**3])
    return (torch.stack(parts, -1) @ form).abs().amax(-1)


def _by_both(value: Tensor, here: list[Tensor]) -> list[Tensor]:
    """Derivatives by both numbers; places do not touch each other, so that one sum serves them all."""
    if not value.requires_grad:
        return [torch.zeros_like(value) for _ in here]
    found = torch.autograd.grad(value.sum(), here, create_graph=True, materialize_grads=True)
    return list(found)


def largest_within(
    values: Tensor, rows: Tensor, columns: Tensor, reach: Callable[[Tensor], Tensor]
) -> Tensor:
    """Largest entry of a map within reach of each place; ``values[i, j]`` lies at ``rows[i]`` and ``columns[j]``.

    What is within reach is a box: ``reach`` tells its half height from the row's number, its half
    width from the column's.

    >>> axis = torch.tensor([0.0, 1.0, 2.0])
    >>> values = torch.tensor([[0.0, 0.0, 5.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> largest_within(values, axis, axis, lambda numbers: numbers / 2).tolist()
    [[0.0, 0.0, 5.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    across = (values[:, None, :] + _far(columns, reach).to(values)).amax(-1)
    return (across.T[:, None, :] + _far(rows, reach).to(values)).amax(-1).T


def _far(axis: Tensor, reach: Callable[[Tensor], Tensor]) -> Tensor:
    """Zero for pairs of lines within reach of the first, minus infinity for others."""
    near = (axis[:, None] - axis).abs() <= reach(axis)[:, None]
    return torch.where(near, 0.0, -math.inf)
