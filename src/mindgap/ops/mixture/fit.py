"""Fit Gaussian mixtures to weighted points, with restarts from weighted k-means++."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer, number
from mindgap.ops.mixture.covariance import SHAPES, Covariance, Shape
from mindgap.ops.mixture.em import Run, State, expectation_maximization, m_step
from mindgap.ops.mixture.model import Mixture
from mindgap.ops.mixture.points import Design, design, spacing

LLOYD_STEPS = 5
LARGEST_CHOICE = 6  # components that are tried by default


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
    r"""Fit a Gaussian mixture to weighted points by expectation-maximization.

    .. math:: \max \sum_i w_i \log \sum_c \pi_c N(x_i;\, \mu_c, \Sigma_c) \quad\text{with}\quad
              \Sigma_c \succeq f^2 \,\mathrm{diag}(\sigma_1^2, \ldots, \sigma_d^2)

    The mixture approximates the density of the points times the weights. For uniform points it is a
    density proportional to the weights. The floor f bounds the likelihood, which never falls from
    one iteration to the next (:class:`mindgap.ops.mixture.covariance.Shape` says why).

    Args:
        points: One row per point.
        weights: One number of at least 0 per point; all ones if None. Points of weight zero do not
            enter the likelihood.
        components: Number of Gaussians.
        covariance: ``"full"`` or ``"diagonal"``.
        restarts: Number of initializations by weighted k-means++, of which the best fit is kept.
        floor: Smallest standard deviation f of a component in any direction, in units of the
            standard deviation σ of each feature. By default it is the weighted median distance to
            the nearest other point, over :math:`2\sqrt d`. A component that has shrunk onto one
            point then still reaches, on average, half-way to the next one.
        tolerance: A fit stops when an iteration gains no more in the weighted mean log-likelihood.
        max_iterations: Most iterations of a fit.
        seed: Seed of the initializations.
        start: A mixture to begin from, instead of restarts.

    >>> points = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    >>> fit_mixture(points, weights=[1, 1, 3, 3], components=2).weights.sort().values
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    choice("covariance", covariance, SHAPES)
    integer("restarts", restarts, 1)
    integer("max_iterations", max_iterations, 1)
    number("tolerance", tolerance)
    layout = design(points, weights)
    _check_components(components if start is None else start.components, layout)
    least = _floor(layout) if floor is None else number("floor", floor)
    rows, weight = layout.weighted
    shape = SHAPES[covariance]
    if start is None:
        state = _random_states(rows, weight, components, restarts, shape, least**2, generator(seed))
    else:
        state = _given(start, layout, covariance, least**2)
    found = expectation_maximization(
        rows, weight, shape, state, least**2, tolerance, max_iterations
    )
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
    r"""Fit mixtures with several numbers of components and keep the one of lowest BIC.

    .. math:: p \log n - 2 n \ell, \qquad n = \Bigl(\sum_i w_i\Bigr)^2 \Big/ \sum_i w_i^2

    Here p is the number of free parameters and ℓ the weighted mean log-likelihood. n is Kish's
    effective sample size: the scale of the weights does not change it, it is the number of points
    if all weights are equal, and 1 if one point has all the weight. Of equal mixtures the smaller
    wins.

    Args:
        points: One row per point.
        weights: One number of at least 0 per point; all ones if None.
        candidates: Numbers of components to try; 1 to 6 if None.
        covariance: See :func:`fit_mixture`.
        restarts: See :func:`fit_mixture`.
        floor: See :func:`fit_mixture`.
        tolerance: See :func:`fit_mixture`.
        max_iterations: See :func:`fit_mixture`.
        seed: See :func:`fit_mixture`.

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
    meaning = "the number of distinct points of positive weight"
    integer("components", components, 1, len(layout.weighted[0]), meaning, "pass more points")


def _floor(layout: Design) -> float:
    gap = spacing(layout.rows, layout.weights)
    if not math.isfinite(gap):
        raise InputError(
            "points must hold at least 2 distinct points to derive a floor from their distance, "
            "got 1. Pass more points or a floor above 0."
        )
    return gap / (2 * math.sqrt(layout.rows.shape[1]))


def _given(start: Mixture, layout: Design, covariance: Covariance, floor: float) -> State:
    """Convert the user's initial mixture to the units of the layout."""
    if start.dimension != len(layout.scale):
        raise InputError(
            f"start must have {len(layout.scale)} features like the points, got {start.dimension}. "
            "Pass a mixture fitted to such points."
        )
    shape = SHAPES[covariance]
    matrices = shape.of_matrix(start.covariances / torch.outer(layout.scale, layout.scale))
    means = (start.means - layout.center) / layout.scale
    return State(
        start.weights.log()[None], means[None], shape.raised(matrices, floor)[None].clone()
    )


def _mixture(found: Run, layout: Design, covariance: Covariance, floor: float) -> Mixture:
    """Convert the best restart to the units of the points."""
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


def _random_states(
    rows: Tensor,
    weights: Tensor,
    components: int,
    restarts: int,
    shape: Shape,
    floor: float,
    generator: torch.Generator,
) -> State:
    """Initialize the components of every restart with the clusters of weighted k-means.

    A cluster of fewer points than dimensions has a singular covariance. Each component therefore
    starts with the mean of its own covariance and that of all clusters together.
    """
    centers = lloyd(
        rows, weights, k_means_plus_plus(rows, weights, components, restarts, generator)
    )
    owner = torch.cdist(rows.expand(restarts, -1, -1), centers).argmin(-1)
    log_share = torch.nn.functional.one_hot(owner, components).double().log().mT
    blank = shape.of_matrix(
        torch.eye(rows.shape[1], dtype=torch.float64).expand(restarts, components, -1, -1)
    )
    empty = State(torch.zeros(restarts, components, dtype=torch.float64), centers, blank.clone())
    state = m_step(rows, weights, shape, empty, log_share, 0.0)
    share = state.log_weights.exp()[(..., *(None,) * (state.covariances.ndim - 2))]
    within = (share * state.covariances).sum(1, keepdim=True)
    state.covariances = shape.raised(0.5 * (state.covariances + within), floor)
    return state


def k_means_plus_plus(
    rows: Tensor, weights: Tensor, components: int, restarts: int, generator: torch.Generator
) -> Tensor:
    """Draw centers (restarts, components, d) by weight times squared distance to earlier ones."""
    # Draws by the Gumbel trick: the largest of log-probability plus Gumbel noise. It works in log
    # space, so weights may differ by any factor that a double holds.
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
    """Run some iterations of weighted k-means; a center without points stays where it is."""
    many = rows.expand(len(centers), -1, -1)
    for _ in range(steps):
        owner = torch.nn.functional.one_hot(
            torch.cdist(many, centers).argmin(-1), centers.shape[1]
        ).double()
        mass = (owner * weights[:, None]).mT
        total = mass.sum(-1, keepdim=True)
        centers = torch.where(total > 0, mass @ rows / total.clamp_min(1e-300), centers)
    return centers
