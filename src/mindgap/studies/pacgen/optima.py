"""The two optima of the toy that the paper compares, found by a rule that was fixed before Ψ and risk were seen.

All local minima of a function of two numbers that a grid can see, refined by Newton's method, all
at once.
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
HALVINGS = 12  # of a step that does not lead downwards
CLOSE = 1e-6  # a further step that is shorter than this means: arrived


def grid_minima(values: Tensor) -> Tensor:
    """Row and column of every entry inside a map that is lower than its eight neighbors, (n, 2).

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
    """The local minima to which Newton's method leads from ``starts`` (n, 2), the lowest first, (k, 2).

    A start is left out if it does not arrive, leaves the square from ``low`` to ``high``, strays
    further than ``reach`` or ends where the Hessian is not positive definite. Several that end at
    one place count once.

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
    """Newton's step with the size of every eigenvalue, so that it leads downwards from anywhere; cut to ``longest``."""
    values, vectors = torch.linalg.eigh(here.hessian)
    least = torch.finfo(values.dtype).tiny
    along = (vectors.mT @ here.slope.unsqueeze(-1)).squeeze(-1) / values.abs().clamp(min=least)
    step: Tensor = -(vectors @ along.unsqueeze(-1)).squeeze(-1)
    length: Tensor = step.norm(dim=-1, keepdim=True)
    scale: Tensor = longest / length.clamp(min=longest)
    return step * scale


def _downwards(function: Function, place: Tensor, value: Tensor, step: Tensor) -> Tensor:
    """The step, halved for each place until it leads no higher; none where no half does."""
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
    """The lowest first, each place once."""
    ordered = places[values.argsort(stable=True)]
    same = torch.cdist(ordered, ordered) < 100 * CLOSE
    return ordered[~same.tril(-1).any(1)]


SLIGHTLY = 0.1  # nats that the flat optimum may lie above the lowest one
AT_ONCE = 4000  # places whose third derivatives are computed together


@dataclasses.dataclass(frozen=True)
class Optima:
    """Local minima inside the square, the lowest first, how many are slightly above it, and which is the flat one."""

    places: Tensor
    near: int
    flat: int | None
    lower_at_edge: bool

    @property
    def pair(self) -> Tensor:
        """The lowest and the flat optimum, (2, 2)."""
        return self.places[[0, self.flat or 0]]

    def other(self, seed: int) -> Tensor:
        """The control: any one of those slightly above the lowest, flat or not, (1, 2)."""
        return self.places[1 + torch.randint(self.near, (1,), generator=generator(seed))]


@dataclasses.dataclass(frozen=True)
class Landscape:
    """Loss, Ψ and bound (8) on a grid around both optima; ``loss[i, j]`` lies at (w₁, w₂) = (``x[j]``, ``y[i]``)."""

    x: Tensor
    y: Tensor
    loss: Tensor
    psi: Tensor
    bound: Tensor


def optima(toy: Toy, lines: int) -> Optima:
    """The lowest local minimum is called sharp; flat is that of least Hessian trace among those slightly above it."""
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
    """All three maps; ρ is the largest norm of the third derivative on the grid within κ of a place."""
    half = float(1.5 * (pair[0] - pair[1]).abs().max() + radii(pair).max())
    step = 2 * half / (lines - 1)
    edge = (
        int(radii(pair.abs().max() + half) / step) + 1
    )  # lines outside the image that κ reaches to
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
    """All pairs (w₁, w₂), row by row of w₂."""
    return torch.cartesian_prod(axis, axis).flip(-1)
