"""Gaussian mixtures fitted to weighted points: the density that Taylor Based Sampling draws from.

Where expectation-maximization starts: weighted k-means from far-apart points, for many restarts at
once.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer, number
from mindgap.ops.mixture.covariance import SHAPES, Covariance, Shape
from mindgap.ops.mixture.em import Climb, State, climb, maximize
from mindgap.ops.mixture.model import Mixture
from mindgap.ops.mixture.points import Design, design, spacing
from mindgap.ops.rejection import Accepted

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

    A cluster of fewer points than dimensions has a singular covariance, so each cluster starts with
    the covariance of all clusters together added to its own, in equal parts; the first step forgets
    it.
    """
    centers = lloyd(rows, weights, far_apart(rows, weights, components, restarts, generator))
    owner = torch.cdist(rows.expand(restarts, -1, -1), centers).argmin(-1)
    log_share = torch.nn.functional.one_hot(owner, components).double().log().mT
    blank = shape.of_matrix(
        torch.eye(rows.shape[1], dtype=torch.float64).expand(restarts, components, -1, -1)
    )
    empty = State(torch.zeros(restarts, components, dtype=torch.float64), centers, blank.clone())
    state = maximize(rows, weights, shape, empty, log_share, 0.0)
    share = state.log_weights.exp()[(..., *(None,) * (state.covariances.ndim - 2))]
    within = (share * state.covariances).sum(1, keepdim=True)
    state.covariances = shape.raised(0.5 * (state.covariances + within), floor)
    return state


def far_apart(
    rows: Tensor, weights: Tensor, components: int, restarts: int, generator: torch.Generator
) -> Tensor:
    """Points drawn by weight times squared distance to those drawn before (k-means++), ``(restarts, components, d)``.

    The largest of log-probability plus Gumbel noise is such a draw, and takes any weight that a
    double holds.
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
    """Some steps of weighted k-means; a center that loses all its points stays where it is."""
    many = rows.expand(len(centers), -1, -1)
    for _ in range(steps):
        owner = torch.nn.functional.one_hot(
            torch.cdist(many, centers).argmin(-1), centers.shape[1]
        ).double()
        mass = (owner * weights[:, None]).mT
        total = mass.sum(-1, keepdim=True)
        centers = torch.where(total > 0, mass @ rows / total.clamp_min(1e-300), centers)
    return centers


__all__ = ["Accepted", "Mixture", "choose_mixture", "fit_mixture"]

LARGEST_CHOICE = 6


def fit_mixture(
    points: Any,
    weights: Any = None,
    components: int = 3,
    *,
    covariance: Covariance = "full",
    restarts: int = 5,
    floor: float | None = None,
    tolerance: float = 1e-5,
    max_iterations: int = 500,
    seed: int = 0,
    start: Mixture | None = None,
) -> Mixture:
    r"""Fit a mixture by expectation-maximization, every point counting by its weight.

    .. math:: \max \sum_i w_i \log \sum_c \pi_c N(x_i;\, \mu_c, \Sigma_c) \quad\text{with}\quad
              \Sigma_c \succeq f^2 \,\mathrm{diag}(\sigma_1^2, \ldots, \sigma_d^2)

    The mixture approximates the density that the points come from, times the weights: where points
    are uniform, a density in proportion to the weights. Points of weight zero have no part in the
    likelihood.

    ``floor`` f is the least standard deviation of a component in any direction, in units of the
    standard deviation σ of each feature. By default it is the median distance (weighted) to the
    nearest other point over :math:`2\sqrt d`: a component that has shrunk onto one point then still
    reaches, on average, half-way to the next one. Points of weight zero are part of that layout.
    With the floor the likelihood is bounded, and it never falls from one step to the next
    (:class:`mindgap.ops.mixture.covariance.Shape` says why).

    The best of ``restarts`` starts by weighted k-means++ is kept; ``start`` gives one start
    instead. A fit stops when a step gains no more than ``tolerance`` in the weighted mean
    log-likelihood.

    >>> points = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    >>> fit_mixture(points, weights=[1, 1, 3, 3], components=2).weights.sort().values
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    choice("covariance", covariance, SHAPES)
    (
        integer("restarts", restarts, 1),
        integer("max_iterations", max_iterations, 1),
        number("tolerance", tolerance),
    )
    layout = design(points, weights)
    _check_components(components if start is None else start.components, layout)
    least = _floor(layout) if floor is None else number("floor", floor)
    rows, weight = layout.weighted
    shape = SHAPES[covariance]
    if start is None:
        state = random_starts(rows, weight, components, restarts, shape, least**2, generator(seed))
    else:
        state = _given(start, layout, covariance, least**2)
    found = climb(rows, weight, shape, state, least**2, tolerance, max_iterations)
    return _mixture(found, layout, covariance, least)


def choose_mixture(
    points: Any,
    weights: Any = None,
    candidates: Iterable[int] | None = None,
    *,
    covariance: Covariance = "full",
    restarts: int = 5,
    floor: float | None = None,
    tolerance: float = 1e-5,
    max_iterations: int = 500,
    seed: int = 0,
) -> Mixture:
    r"""The mixture of lowest BIC among numbers of components, by default 1 to 6; of equals the smaller one.

    .. math:: p \log n - 2 n \ell, \qquad n = \Bigl(\sum_i w_i\Bigr)^2 \Big/ \sum_i w_i^2

    with p free numbers and the weighted mean log-likelihood ℓ. n is Kish's effective sample size:
    it does not change with the unit of the weights, is the number of points where they are equal,
    and sinks to 1 where one point has all the weight.

    >>> points = torch.cat([torch.linspace(0, 1, 30), torch.linspace(5, 6, 30)])[:, None]
    >>> choose_mixture(points, candidates=[1, 2, 3]).components
    2
    """
    if candidates is None:
        candidates = range(1, 1 + min(LARGEST_CHOICE, len(design(points, weights).weighted[0])))
    sizes = sorted(set(candidates))
    if not sizes:
        raise InputError(
            "candidates must hold at least one number of components, got none. Try range(1, 7)."
        )
    found = [
        fit_mixture(
            points,
            weights,
            size,
            covariance=covariance,
            restarts=restarts,
            floor=floor,
            tolerance=tolerance,
            max_iterations=max_iterations,
            seed=seed,
        )
        for size in sizes
    ]
    return min(found, key=lambda mixture: mixture.bic)


def _check_components(components: int, layout: Design) -> None:
    meaning = "the number of different points of positive weight"
    integer("components", components, 1, len(layout.weighted[0]), meaning, "pass more points")


def _floor(layout: Design) -> float:
    gap = spacing(layout.rows, layout.weights)
    if not math.isfinite(gap):
        raise InputError(
            "points must hold at least 2 different points to tell how far apart they lie, got 1. "
            "Pass more points or a "
            "floor above 0."
        )
    return gap / (2 * math.sqrt(layout.rows.shape[1]))


def _given(start: Mixture, layout: Design, covariance: Covariance, floor: float) -> State:
    """A start that somebody gave, in the units of the layout."""
    if start.dimension != len(layout.scale):
        raise InputError(
            f"start must have {len(layout.scale)} features as the points have, got "
            f"{start.dimension}. Pass another one."
        )
    shape = SHAPES[covariance]
    matrices = shape.of_matrix(start.covariances / torch.outer(layout.scale, layout.scale))
    means = (start.means - layout.center) / layout.scale
    return State(
        start.weights.log()[None], means[None], shape.raised(matrices, floor)[None].clone()
    )


def _mixture(found: Climb, layout: Design, covariance: Covariance, floor: float) -> Mixture:
    """The best restart, in the units of the points."""
    steps = found.steps
    best = int(found.history[-1].argmax())
    history = found.history[: int(steps[best]) + 1, best] - layout.scale.log().sum()
    matrices = SHAPES[covariance].matrix(found.state.covariances[best]) * torch.outer(
        layout.scale, layout.scale
    )
    return Mixture(
        found.state.log_weights[best].exp(),
        found.state.means[best] * layout.scale + layout.center,
        matrices,
        covariance=covariance,
        history=tuple(history.tolist()),
        converged=bool(found.converged[best]),
        floor=floor,
        size=layout.size,
    )
