"""Where expectation-maximisation starts: weighted k-means from far-apart points, for many restarts at once."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.ops.mixture_em import State, maximise
from mindgap.ops.mixture_shape import Shape

LLOYD_STEPS = 5


def random_starts(
    rows: Tensor,
    weights: Tensor,
    components: int,
    restarts: int,
    shape: Shape,
    floor: float,
    generator: torch.Generator,
) -> State:
    """Components that hold the clusters of weighted k-means, one set for every restart.

    A cluster of fewer points than dimensions has a singular covariance, so each cluster starts with the covariance of
    all clusters together added to its own, in equal parts; the first step forgets it.
    """
    centers = lloyd(rows, weights, far_apart(rows, weights, components, restarts, generator))
    owner = torch.cdist(rows.expand(restarts, -1, -1), centers).argmin(-1)
    log_share = torch.nn.functional.one_hot(owner, components).double().log().mT
    blank = shape.of_matrix(torch.eye(rows.shape[1], dtype=torch.float64).expand(restarts, components, -1, -1))
    empty = State(torch.zeros(restarts, components, dtype=torch.float64), centers, blank.clone())
    state = maximise(rows, weights, shape, empty, log_share, 0.0)
    share = state.log_weights.exp()[(..., *(None,) * (state.covariances.ndim - 2))]
    within = (share * state.covariances).sum(1, keepdim=True)
    state.covariances = shape.raised(0.5 * (state.covariances + within), floor)
    return state


def far_apart(rows: Tensor, weights: Tensor, components: int, restarts: int, generator: torch.Generator) -> Tensor:
    """Points drawn by weight times squared distance to those drawn before (k-means++), ``(restarts, components, d)``.

    The largest of log-probability plus Gumbel noise is such a draw, and takes any weight that a double holds.
    """
    log_weights = weights.log()
    square = torch.ones(restarts, len(rows), dtype=torch.float64)
    chosen = []
    for _ in range(components):
        noise = torch.empty_like(square).exponential_(generator=generator).log_()
        chosen.append(rows[(log_weights + square.log() - noise).argmax(-1)])
        away = (rows - chosen[-1].unsqueeze(1)).square().sum(-1)
        square = away if len(chosen) == 1 else torch.minimum(square, away)
    return torch.stack(chosen, dim=1)


def lloyd(rows: Tensor, weights: Tensor, centers: Tensor, steps: int = LLOYD_STEPS) -> Tensor:
    """Some steps of weighted k-means; a centre that loses all its points stays where it is."""
    many = rows.expand(len(centers), -1, -1)
    for _ in range(steps):
        owner = torch.nn.functional.one_hot(torch.cdist(many, centers).argmin(-1), centers.shape[1]).double()
        mass = (owner * weights[:, None]).mT
        total = mass.sum(-1, keepdim=True)
        centers = torch.where(total > 0, mass @ rows / total.clamp_min(1e-300), centers)
    return centers
