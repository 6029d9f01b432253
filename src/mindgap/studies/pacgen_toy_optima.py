"""The two optima of the toy that the paper compares, found by a rule that was fixed before Ψ and risk were seen."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from mindgap.core.arguments import generator
from mindgap.ops.pacgen import pacgen_parts, radii
from mindgap.ops.plane_calculus import derivatives, largest_within, third_norm
from mindgap.ops.plane_minima import grid_minima, refined_minima
from mindgap.studies.pacgen_toy import LARGEST, Toy
from mindgap.studies.pacgen_toy_scores import bound8

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
    return Optima(places, int(slightly.sum()) - 1, flat or None, bool(loss.min() < here.value[0] - 1e-9))


def landscape(toy: Toy, pair: Tensor, lines: int) -> Landscape:
    """All three maps; ρ is the largest norm of the third derivative on the grid within κ of a place."""
    half = float(1.5 * (pair[0] - pair[1]).abs().max() + radii(pair).max())
    step = 2 * half / (lines - 1)
    edge = int(radii(pair.abs().max() + half) / step) + 1  # lines outside the picture that κ reaches to
    number = (torch.arange(lines + 2 * edge, dtype=torch.float64) - edge) * step - half
    x, y = (number + middle for middle in pair.mean(0))
    places = torch.cartesian_prod(y, x).flip(-1)
    parts = places.split(AT_ONCE)
    thirds = torch.cat([third_norm(toy.loss, part) for part in parts]).view(len(y), len(x))
    rho = largest_within(thirds, y, x, radii).flatten()
    found = [derivatives(toy.loss, part) for part in parts]
    loss, diagonal = torch.cat([part.value for part in found]), torch.cat([part.diagonal for part in found])
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
