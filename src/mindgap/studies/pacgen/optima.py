"""The sharp and the flat optimum of the toy network, found by a fixed rule.

A grid search finds the local minima and Newton's method refines them. The rule that picks the two
was fixed before Ψ and risk were computed.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core import generator
from mindgap.ops.curvature.pacgen import pacgen_parts, radii
from mindgap.studies.pacgen.calculus import (
    Derivatives,
    Function,
    derivatives,
    largest_within,
    third_norm,
)
from mindgap.studies.pacgen.toy import LARGEST, Toy, bound8

STEPS = 40  # of Newton's method
HALVINGS = 12  # of a step that increases the function
CLOSE = 1e-6  # a next step shorter than this means convergence


def grid_minima(values: Tensor) -> Tensor:
    """Find the inner entries of a map that are lower than their eight neighbors.

    Args:
        values: The map.

    Returns:
        Row and column of each such entry, ``(n, 2)``.

    >>> grid_minima(
    ...     torch.tensor([[9.0, 9.0, 9.0, 0.0], [9.0, 1.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]])
    ... ).tolist()
    [[1, 1]]
    """
    around = F.unfold(values[None, None], 3)[0]
    middle, others = around[4], torch.cat([around[:4], around[5:]])
    lower = (middle < others.amin(0)).view(values.shape[0] - 2, values.shape[1] - 2)
    return lower.nonzero() + 1


def refined_minima(
    function: Function, starts: Tensor, low: float, high: float, reach: float
) -> Tensor:
    """Refine local minima by Newton's method and return the distinct ones, lowest first.

    A starting point is dropped if it does not converge, leaves the square, moves further than
    ``reach`` or ends where the Hessian is not positive definite.

    Args:
        function: The function to minimize.
        starts: The starting points, ``(n, 2)``.
        low: Lower edge of the square.
        high: Upper edge of the square.
        reach: Largest distance of a minimum from its starting point, and largest step.

    >>> well = lambda x, y: (x**2 - 1) ** 2 + (y - 0.5 * x) ** 2 + 0.1 * x
    >>> starts = torch.tensor([[0.9, 0.3], [-0.8, -0.2], [-1.1, -0.6]], dtype=torch.float64)
    >>> [
    ...     [round(value, 4) for value in place]
    ...     for place in refined_minima(well, starts, -2, 2, 1).tolist()
    ... ]
    [[-1.0123, -0.5061], [0.9873, 0.4936]]
    """
    place = starts.clone()
    if not len(place):
        return place
    for _ in range(STEPS):
        here = derivatives(function, place)
        step = _newton(here, reach)
        place = place + _downwards(function, place, here.value, step)
        if float(step.norm(dim=-1).max()) < CLOSE**2:
            break
    here = derivatives(function, place)
    plain = torch.linalg.eigvalsh(here.hessian)[:, 0] > 0
    arrived = _newton(here, reach).norm(dim=-1) < CLOSE
    inside = ((place > low) & (place < high)).all(-1) & ((place - starts).norm(dim=-1) <= reach)
    kept = plain & arrived & inside
    return _distinct(place[kept], here.value[kept])


def _newton(here: Derivatives, longest: float) -> Tensor:
    """Return Newton's step, at most ``longest``.

    Absolute eigenvalues make it a descent direction also where the Hessian is indefinite.
    """
    values, vectors = torch.linalg.eigh(here.hessian)
    least = torch.finfo(values.dtype).tiny
    along = (vectors.mT @ here.slope.unsqueeze(-1)).squeeze(-1) / values.abs().clamp(min=least)
    step: Tensor = -(vectors @ along.unsqueeze(-1)).squeeze(-1)
    length: Tensor = step.norm(dim=-1, keepdim=True)
    scale: Tensor = longest / length.clamp(min=longest)
    return step * scale


def _downwards(function: Function, place: Tensor, value: Tensor, step: Tensor) -> Tensor:
    """Halve the step at each point until the function does not increase; else return zero."""
    scale = torch.ones_like(value)
    for _ in range(HALVINGS):
        higher = ~(function(*(place + scale[:, None] * step).unbind(-1)) <= value)
        if not bool(higher.any()):
            break
        scale = torch.where(higher, scale / 2, scale)
    else:
        scale = torch.where(
            function(*(place + scale[:, None] * step).unbind(-1)) <= value, scale, 0.0
        )
    return scale[:, None] * step


def _distinct(places: Tensor, values: Tensor) -> Tensor:
    """Sort points by value and drop duplicates."""
    ordered = places[values.argsort(stable=True)]
    same = torch.cdist(ordered, ordered) < 100 * CLOSE
    return ordered[~same.tril(-1).any(1)]


SLIGHTLY = 0.1  # nats by which the flat optimum may exceed the lowest one
AT_ONCE = 4000  # points whose third derivatives are computed together


@dataclasses.dataclass(frozen=True)
class Optima:
    """The local minima inside the square.

    Args:
        places: The minima, lowest first, ``(n, 2)``.
        near: How many others are at most ``SLIGHTLY`` above the lowest.
        flat: Which of them is the flat optimum; None if the lowest is the flattest.
        lower_at_edge: Whether the loss is lower still at the edge of the square.
    """

    places: Tensor
    near: int
    flat: int | None
    lower_at_edge: bool

    @property
    def pair(self) -> Tensor:
        """The sharp (lowest) and the flat optimum, ``(2, 2)``."""
        return self.places[[0, self.flat or 0]]

    def other(self, seed: int) -> Tensor:
        """Return the control, ``(1, 2)``: a random minimum slightly above the lowest."""
        return self.places[1 + torch.randint(self.near, (1,), generator=generator(seed))]


@dataclasses.dataclass(frozen=True)
class Landscape:
    """Loss, Ψ and bound (8) on a grid around both optima.

    Args:
        x: Values of w₁.
        y: Values of w₂.
        loss: The training loss; ``loss[i, j]`` belongs to (w₁, w₂) = (``x[j]``, ``y[i]``).
        psi: Ψ at the same points.
        bound: Bound (8) at the same points.
    """

    x: Tensor
    y: Tensor
    loss: Tensor
    psi: Tensor
    bound: Tensor


def optima(toy: Toy, lines: int) -> Optima:
    """Find all local minima and the flat optimum among them.

    The flat optimum has the least Hessian trace among the minima slightly above the lowest.

    Args:
        toy: The network with its samples.
        lines: Grid points per axis.
    """
    axis = _axis(lines)
    loss = toy.losses(_crossings(axis)).view(lines, lines)
    starts = axis[grid_minima(loss)].flip(-1)
    places = refined_minima(toy.loss, starts, -LARGEST, LARGEST, reach=4 * LARGEST / (lines - 1))
    if not len(places):
        return Optima(places, 0, None, True)
    here = derivatives(toy.loss, places)
    slightly = here.value <= here.value[0] + SLIGHTLY
    flat = int(torch.where(slightly, here.trace, torch.inf).argmin())
    return Optima(
        places, int(slightly.sum()) - 1, flat or None, bool(loss.min() < here.value[0] - 1e-9)
    )


def landscape(toy: Toy, pair: Tensor, lines: int) -> Landscape:
    """Compute loss, Ψ and bound (8) around both optima.

    ρ is the largest norm of the third derivative on the grid within κ of a point.

    Args:
        toy: The network with its samples.
        pair: The sharp and the flat optimum.
        lines: Grid points per axis.
    """
    half = float(1.5 * (pair[0] - pair[1]).abs().max() + radii(pair).max())
    step = 2 * half / (lines - 1)
    # Grid points beyond the chart that lie within κ of a point inside.
    edge = int(radii(pair.abs().max() + half) / step) + 1
    number = (torch.arange(lines + 2 * edge, dtype=torch.float64) - edge) * step - half
    x, y = (number + middle for middle in pair.mean(0))
    places = torch.cartesian_prod(y, x).flip(-1)
    parts = places.split(AT_ONCE)
    thirds = torch.cat([third_norm(toy.loss, part) for part in parts]).view(len(y), len(x))
    rho = largest_within(thirds, y, x, radii).flatten()
    found = [derivatives(toy.loss, part) for part in parts]
    loss, diagonal = (
        torch.cat([part.value for part in found]),
        torch.cat([part.diagonal for part in found]),
    )
    psi = pacgen_parts(places, diagonal, rho).terms.sum(-1)
    bound = bound8(loss, places, diagonal, rho, len(toy.inputs)).bound
    inner = slice(edge, edge + lines)
    maps = (values.view(len(y), len(x))[inner, inner] for values in (loss, psi, bound))
    return Landscape(x[inner], y[inner], *maps)


def _axis(lines: int) -> Tensor:
    return torch.linspace(-LARGEST, LARGEST, lines, dtype=torch.float64)


def _crossings(axis: Tensor) -> Tensor:
    """Return all pairs (w₁, w₂), row by row of w₂."""
    return torch.cartesian_prod(axis, axis).flip(-1)
