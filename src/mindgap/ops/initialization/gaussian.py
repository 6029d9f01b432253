"""Moments of functions of Gaussian numbers: in closed form for ReLU, by quadrature for all others."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

# Midpoints of cells, so that a kink or a jump at the mean lies between two of them. What is beyond
# eight standard deviations has a probability of 1e-15.
CELLS, REACH = 256, 8.0
MOST = 1024  # standard deviations that are integrated one by one; more are interpolated
ROWS = 8192  # distributions that are integrated at once

Function = Callable[[Tensor], Tensor]
Three = tuple[Tensor, Tensor, Tensor]


def gaussian_moments(function: Function, mean: Tensor, std: Tensor) -> Three:
    r"""Integrate an elementwise function and its derivative over Gaussian distributions.

    .. math:: E\,\phi(z), \quad E\,\phi(z)^2, \quad E\,\phi'(z)^2 \qquad z \sim N(m, s^2)

    Args:
        function: An elementwise function that torch can differentiate.
        mean: Means of the distributions, of any shape.
        std: Their standard deviations, of the same shape.

    >>> zero, one = torch.zeros(1).double(), torch.ones(1).double()
    >>> [abs(round(float(row), 4)) for row in gaussian_moments(torch.tanh, zero, one)]
    [0.0, 0.3943, 0.4644]
    """
    # Rounding to single precision makes equal what differs by rounding only.
    narrow, centers = std.float().flatten(), mean.flatten().double()
    if bool((centers == centers[:1]).all()):
        spread, places = narrow.unique(return_inverse=True)
        if len(spread) > MOST:
            found = _interpolated(function, centers[0], std.flatten().double())
        else:
            whole = _integrated(function, centers[0].expand(len(spread)), spread.double())
            found = tuple(row[places] for row in whole)  # type: ignore[assignment]
    else:
        pairs, places = torch.stack([mean.float().flatten(), narrow], 1).unique(
            dim=0, return_inverse=True
        )
        whole = _integrated(function, pairs[:, 0].double(), pairs[:, 1].double())
        found = tuple(row[places] for row in whole)  # type: ignore[assignment]
    first, second, slope = (row.view_as(std) for row in found)
    return first, second, slope


def rectified_moments(mean: Tensor, std: Tensor, negative: float = 0.0) -> Three:
    r"""Return the same three moments of a leaky ReLU in closed form.

    With the distribution function :math:`\Phi` and the density :math:`\varphi` of a standard
    Gaussian and :math:`a = m / s`, those of ReLU are :math:`m \Phi(a) + s \varphi(a)`,
    :math:`(m^2 + s^2) \Phi(a) + m s \varphi(a)` and :math:`\Phi(a)`.

    Args:
        mean: Means of the distributions.
        std: Their standard deviations.
        negative: Slope below zero.

    >>> zero, one = torch.zeros(1).double(), torch.ones(1).double()
    >>> [round(float(row), 4) for row in rectified_moments(zero, one)]
    [0.3989, 0.5, 0.5]
    """
    ratio = mean / std.clamp_min(1e-300)
    above = torch.special.ndtr(ratio)
    density = torch.exp(-ratio.square() / 2) / math.sqrt(2 * math.pi)
    square = mean.square() + std.square()
    upper = mean * above + std * density, square * above + mean * std * density
    below = 1 - above
    lower = std * density - mean * below, square * below - mean * std * density
    return (
        upper[0] - negative * lower[0],
        upper[1] + negative**2 * lower[1],
        above + negative**2 * below,
    )


def product_moment(function: Function, mean: float, square: float, common: float) -> float:
    r"""Integrate the product of a function's values at two correlated Gaussian numbers.

    .. math:: E\,\phi(u)\,\phi(v), \quad E u = E v = m, \quad E u^2 = E v^2 = q, \quad E u v = c

    Args:
        function: An elementwise function.
        mean: Their mean m.
        square: Their second moment q.
        common: Their mixed moment c.

    >>> round(product_moment(torch.relu, 0.0, 1.0, 0.0) * 2 * math.pi, 3)
    1.0
    """
    variance = max(square - mean**2, 0.0)
    shared = min(max(common - mean**2, 0.0), variance)
    nodes, weights = _nodes()
    outer = mean + math.sqrt(shared) * nodes
    points = outer[:, None] + math.sqrt(variance - shared) * nodes
    with torch.no_grad():
        inner = function(points) @ weights
    return float(inner.square() @ weights)


def _nodes() -> tuple[Tensor, Tensor]:
    step = 2 * REACH / CELLS
    nodes = -REACH + step * (torch.arange(CELLS, dtype=torch.float64) + 0.5)
    weights = torch.exp(-nodes.square() / 2)
    return nodes, weights / weights.sum()


def _integrated(function: Function, mean: Tensor, std: Tensor) -> Three:
    nodes, weights = (row.to(std.device) for row in _nodes())
    rows = list[Three]()
    for part in torch.arange(len(std), device=std.device).split(ROWS):
        points = (mean[part, None] + std[part, None] * nodes).requires_grad_()
        with torch.enable_grad():
            values = function(points + 0)  # a function that works in place must not meet a leaf
            (slopes,) = torch.autograd.grad(values.sum(), points)
        values = values.detach()
        rows.append((values @ weights, values.square() @ weights, slopes.square() @ weights))
    first, second, slope = (torch.cat(column) for column in zip(*rows, strict=True))
    return first, second, slope


def _interpolated(function: Function, mean: Tensor, std: Tensor) -> Three:
    """Interpolate linearly in the logarithm of the standard deviation, at one mean."""
    positive = std.clamp_min(float(std.max()) * 1e-6 + 1e-300)
    low, high = float(positive.min().log()), float(positive.max().log())
    grid = torch.linspace(low, high, MOST, dtype=torch.float64, device=std.device)
    table = _integrated(function, mean.expand_as(grid), grid.exp())
    place = (positive.log() - low) / max(high - low, 1e-300) * (MOST - 1)
    left = place.floor().long().clamp(0, MOST - 2)
    rest = place - left
    first, second, slope = (row[left] * (1 - rest) + row[left + 1] * rest for row in table)
    return first, second, slope
