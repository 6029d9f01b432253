"""Two classes in the square from −1 to 1 with a smooth boundary and no noise."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import generator

Pair = tuple[Tensor, Tensor]
# Where the function is positive is class 1.
BOUNDARIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "circle": lambda x, y: 0.75**2 - x**2 - y**2,
    "waves": lambda x, y: y - 0.5 * torch.sin(3 * math.pi * x),
}


def samples(boundary: str, count: int, seed: int) -> Pair:
    """Draw points that are uniform in the square, and their classes.

    Args:
        boundary: A name in ``BOUNDARIES``.
        count: Number of points.
        seed: Seed of the points.

    >>> inputs, labels = samples("circle", 1000, seed=0)
    >>> round(float(labels.float().mean()), 1)  # 0.75² π / 4
    0.4
    """
    inputs = 2 * torch.rand(count, 2, generator=generator(seed)) - 1
    return inputs, (BOUNDARIES[boundary](inputs[:, 0], inputs[:, 1]) > 0).long()


def grid(size: int) -> tuple[Tensor, Tensor]:
    """Give one axis of a grid over the square, and all its points, row by row.

    Args:
        size: Places per axis.

    >>> axis, places = grid(2)
    >>> places.tolist()
    [[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]]
    """
    axis = torch.linspace(-1, 1, size)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    return axis, torch.stack([columns.flatten(), rows.flatten()], 1)
