"""Weighted expectation-maximization for Gaussian mixtures, in log space, for many restarts at once."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from mindgap.ops.mixture.covariance import Shape


@dataclasses.dataclass
class State:
    """Restarts × components: logarithms of the weights, means, and covariances in the form of their shape."""

    log_weights: Tensor
    means: Tensor
    covariances: Tensor

    def at(self, restarts: Tensor) -> State:
        """The state of some restarts."""
        return State(self.log_weights[restarts], self.means[restarts], self.covariances[restarts])

    def put(self, restarts: Tensor, state: State) -> None:
        """Replace the state of some restarts."""
        self.log_weights[restarts] = state.log_weights
        self.means[restarts] = state.means
        self.covariances[restarts] = state.covariances


@dataclasses.dataclass
class Climb:
    """Where the restarts ended, and the mean log-likelihood of each before every step and after the last."""

    state: State
    history: Tensor
    steps: Tensor
    converged: Tensor


def climb(
    rows: Tensor,
    weights: Tensor,
    shape: Shape,
    state: State,
    floor: float,
    tolerance: float,
    max_iterations: int,
) -> Climb:
    r"""Repeat steps until the weighted mean log-likelihood gains no more than ``tolerance``.

    .. math:: \ell = \sum_i w_i \log \sum_c \pi_c N(x_i;\, \mu_c, \Sigma_c), \qquad \sum_i w_i = 1

    A restart that has converged is left alone while others go on.
    """
    count = len(state.means)
    active, value = torch.arange(count), torch.full((count,), -torch.inf, dtype=torch.float64)
    steps, converged = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.bool)
    history = []
    for step in range(max_iterations + 1):
        current = state.at(active)
        log_share, density = expect(rows, shape, current)
        last, value[active] = value[active], density @ weights
        history.append(value.clone())
        steps[active] = step
        more = value[active] - last > tolerance
        converged[active[~more]] = True
        if step == max_iterations or not bool(more.any()):
            break
        active = active[more]
        state.put(active, maximize(rows, weights, shape, current.at(more), log_share[more], floor))
    return Climb(state, torch.stack(history), steps, converged)


def expect(rows: Tensor, shape: Shape, state: State) -> tuple[Tensor, Tensor]:
    """The logarithms of each component's share in each point, and of the density there."""
    joint = shape.log_normal(rows, state.means, state.covariances).add_(
        state.log_weights[..., None]
    )
    density = joint.logsumexp(-2)
    return joint.sub_(density.unsqueeze(-2)), density


def maximize(
    rows: Tensor, weights: Tensor, shape: Shape, state: State, log_share: Tensor, floor: float
) -> State:
    """The mixture of highest expected likelihood under these shares, no covariance below the floor.

    Shares are normalized in log space, so a component may be as light as it likes. One that no
    point belongs to stays where it was, with weight zero.
    """
    log_mass = log_share + weights.log()
    total = log_mass.logsumexp(-1)
    alive = total > -torch.inf
    share = log_mass.sub_(torch.where(alive, total, 0.0)[..., None]).exp_()
    means = torch.where(alive[..., None], share @ rows, state.means)
    covariances = shape.raised(shape.scatter(rows, means, share), floor)
    kept = alive[(..., *(None,) * (covariances.ndim - alive.ndim))]
    return State(total.log_softmax(-1), means, torch.where(kept, covariances, state.covariances))
