"""All local minima of a function of two numbers that a grid can see, refined by Newton's method, all at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.ops.plane_calculus import Derivatives, Function, derivatives

STEPS = 40  # of Newton's method
HALVINGS = 12  # of a step that does not lead downwards
CLOSE = 1e-6  # a further step that is shorter than this means: arrived


def grid_minima(values: Tensor) -> Tensor:
    """Row and column of every entry inside a map that is lower than its eight neighbours, (n, 2).

    >>> grid_minima(torch.tensor([[9.0, 9.0, 9.0, 0.0], [9.0, 1.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]])).tolist()
    [[1, 1]]
    """
    around = F.unfold(values[None, None], 3)[0]
    middle, others = around[4], torch.cat([around[:4], around[5:]])
    lower = (middle < others.amin(0)).view(values.shape[0] - 2, values.shape[1] - 2)
    return lower.nonzero() + 1


def refined_minima(function: Function, starts: Tensor, low: float, high: float, reach: float) -> Tensor:
    """The local minima to which Newton's method leads from ``starts`` (n, 2), the lowest first, (k, 2).

    A start is left out if it does not arrive, leaves the square from ``low`` to ``high``, strays further than ``reach``
    or ends where the Hessian is not positive definite. Several that end at one place count once.

    >>> well = lambda x, y: (x**2 - 1) ** 2 + (y - 0.5 * x) ** 2 + 0.1 * x
    >>> starts = torch.tensor([[0.9, 0.3], [-0.8, -0.2], [-1.1, -0.6]], dtype=torch.float64)
    >>> [[round(value, 4) for value in place] for place in refined_minima(well, starts, -2, 2, 1).tolist()]
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
        scale = torch.where(function(*(place + scale[:, None] * step).unbind(-1)) <= value, scale, 0.0)
    return scale[:, None] * step


def _distinct(places: Tensor, values: Tensor) -> Tensor:
    """The lowest first, each place once."""
    ordered = places[values.argsort(stable=True)]
    same = torch.cdist(ordered, ordered) < 100 * CLOSE
    return ordered[~same.tril(-1).any(1)]
