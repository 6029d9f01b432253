"""Weighted expectation-maximization for Gaussian mixtures, for many restarts at once."""

import dataclasses

import torch
from torch import Tensor

from mindgap.ops.mixture.covariance import Shape


@dataclasses.dataclass
class State:
    """Parameters of several restarts.

    Attributes:
        log_weights: (restarts, components).
        means: (restarts, components, dimension).
        covariances: (restarts, components, …), in the form of their shape.
    """

    log_weights: Tensor
    means: Tensor
    covariances: Tensor

    def at(self, restarts: Tensor) -> "State":
        """Select some restarts."""
        return State(self.log_weights[restarts], self.means[restarts], self.covariances[restarts])

    def put(self, restarts: Tensor, state: "State") -> None:
        """Replace some restarts."""
        self.log_weights[restarts] = state.log_weights
        self.means[restarts] = state.means
        self.covariances[restarts] = state.covariances


@dataclasses.dataclass
class Run:
    """A run of expectation-maximization, for several restarts.

    Attributes:
        state: Final parameters.
        history: Mean log-likelihood before each iteration and after the last, one row each.
        steps: Number of iterations of each restart.
        converged: Whether each restart converged.
    """

    state: State
    history: Tensor
    steps: Tensor
    converged: Tensor


def expectation_maximization(
    rows: Tensor,
    weights: Tensor,
    shape: Shape,
    state: State,
    floor: float,
    tolerance: float,
    max_iterations: int,
) -> Run:
    r"""Iterate until the weighted mean log-likelihood gains no more than ``tolerance``.

    .. math:: \ell = \sum_i w_i \log \sum_c \pi_c N(x_i;\, \mu_c, \Sigma_c), \qquad \sum_i w_i = 1

    Args:
        rows: Points.
        weights: Weights of the points, which sum to one.
        shape: Form of the covariances.
        state: Initial parameters of all restarts; a restart that has converged stays as it is.
        floor: Smallest variance of a component in any direction.
        tolerance: Smallest gain with which a restart continues.
        max_iterations: Most iterations.
    """
    count = len(state.means)
    active, value = torch.arange(count), torch.full((count,), -torch.inf, dtype=torch.float64)
    steps, converged = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.bool)
    history = []
    for step in range(max_iterations + 1):
        current = state.at(active)
        log_share, density = _e_step(rows, shape, current)
        last, value[active] = value[active], density @ weights
        history.append(value.clone())
        steps[active] = step
        more = value[active] - last > tolerance
        converged[active[~more]] = True
        if step == max_iterations or not bool(more.any()):
            break
        active = active[more]
        state.put(active, m_step(rows, weights, shape, current.at(more), log_share[more], floor))
    return Run(state, torch.stack(history), steps, converged)


def _e_step(rows: Tensor, shape: Shape, state: State) -> tuple[Tensor, Tensor]:
    """Compute the log responsibilities of the components and the log density at every point."""
    joint = shape.log_normal(rows, state.means, state.covariances).add_(
        state.log_weights[..., None]
    )
    density = joint.logsumexp(-2)
    return joint.sub_(density.unsqueeze(-2)), density


def m_step(
    rows: Tensor, weights: Tensor, shape: Shape, state: State, log_share: Tensor, floor: float
) -> State:
    """Maximize the expected likelihood under these responsibilities and the floor.

    Responsibilities are normalized in log space, so a component may have any weight, however small.
    A component without points keeps its mean and covariance, with weight zero.
    """
    log_mass = log_share + weights.log()
    total = log_mass.logsumexp(-1)
    alive = total > -torch.inf
    share = log_mass.sub_(torch.where(alive, total, 0.0)[..., None]).exp_()
    means = torch.where(alive[..., None], share @ rows, state.means)
    covariances = shape.raised(shape.scatter(rows, means, share), floor)
    kept = alive[(..., *(None,) * (covariances.ndim - alive.ndim))]
    return State(total.log_softmax(-1), means, torch.where(kept, covariances, state.covariances))
