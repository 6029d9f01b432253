"""Sample weights from local variance: scaling, controls, density correction, suspects of a wrong label.

How densely samples lie, as the logarithm of an estimated density: by neighbors, by kernels, by a
mixture.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError
from mindgap.ops.mixture.fit import fit_mixture

Scaling = Literal["max", "min-max"]
Normalize = Literal["mean"]


def scale_weights(
    variance: Tensor,
    max_weight: float,
    *,
    scaling: Scaling = "max",
    normalize: Normalize | None = None,
) -> Tensor:
    r"""Weights from 1 (calm) to ``max_weight`` m (where the variance is largest).

    .. math:: w = 1 + (m - 1) \frac{v}{\max v} \quad (\text{"max"}), \qquad
              w = 1 + (m - 1) \frac{v - \min v}{\max v - \min v} \quad (\text{"min-max"})

    Where all variances are equal there is nothing to tell apart, and ``"min-max"`` gives all
    weights 1; so does ``"max"`` where they are zero. ``normalize="mean"`` divides by the mean
    weight, so that weighted training takes steps of the same size as unweighted training.

    >>> scale_weights(torch.tensor([0.0, 0.5, 1.0]), 5).tolist()
    [1.0, 3.0, 5.0]
    """
    _check(max_weight, scaling, normalize)
    values = variance.detach().double()
    low = float(values.min()) if scaling == "min-max" else 0.0
    spread = float(values.max()) - low
    weights = torch.ones_like(values)
    if spread > 0:
        weights += (max_weight - 1) * ((values - low) / spread)
    return weights / mean(weights) if normalize == "mean" else weights


def mean(values: Tensor) -> float:
    """The mean from an exact sum, which no order of the values changes."""
    return math.fsum(values.tolist()) / len(values)


def permuted(weights: Tensor, generator: torch.Generator) -> Tensor:
    """A control: the same weights on other samples. What it still achieves is not due to the local variance."""
    return weights[torch.randperm(len(weights), generator=generator)]


def uniform(weights: Tensor) -> Tensor:
    """A control: every sample weighs 1."""
    return torch.ones_like(weights)


def density_corrected(variance: Tensor, log_density: Tensor, winsorize: float = 0.05) -> Tensor:
    r"""Variance over density, up to a factor, as importance weighting asks: :math:`w \propto v / p_X`.

    Estimated densities differ by hundreds of powers of ten between samples, so the logarithm is
    winsorized first: what lies outside its ``winsorize`` and ``1 - winsorize`` quantiles is moved
    onto them. The result is scaled so that the densest sample keeps its variance and thinner ones
    gain.

    >>> density_corrected(
    ...     torch.ones(3), torch.tensor([0.0, -1.0, -2.0]), winsorize=0
    ... ).log().tolist()
    [0.0, 1.0, 2.0]
    """
    if not 0 <= winsorize < 0.5:
        raise InputError(
            f"winsorize must be a number from 0 up to (not with) 0.5, got {winsorize!r}. Try 0.05."
        )
    density = log_density.double()
    ordered = density.sort().values
    cut = int(
        winsorize * len(ordered)
    )  # an element, not an interpolation: infinities stay out of the arithmetic
    density = density.clamp(ordered[cut], ordered[-1 - cut])
    rarity = (density.max() - density).clamp_max(
        600
    )  # the largest ratio of doubles, with room to multiply
    return variance.double() * rarity.exp()


def suspects(agreement: Tensor, threshold: float = 0.1) -> Tensor:
    """The samples whose class at most a share ``threshold`` of their neighbors carries: perhaps a wrong label.

    >>> suspects(torch.tensor([0.0, 0.1, 0.9])).tolist()
    [True, True, False]
    """
    if not 0 <= threshold <= 1:
        raise InputError(
            f"threshold must be a number from 0 to 1, got {threshold!r}. It is a share of "
            "neighbors."
        )
    return agreement <= threshold + 1e-12


def outliers(deviation: Tensor, threshold: float = 5.0) -> Tensor:
    """The samples whose value lies more than ``threshold`` standard deviations from those around: perhaps wrong.

    >>> outliers(torch.tensor([0.5, 9.0, torch.inf])).tolist()
    [False, True, True]
    """
    if not threshold > 0:
        raise InputError(
            f"threshold must be above 0, got {threshold!r}. It counts standard deviations."
        )
    return deviation > threshold


def _check(max_weight: float, scaling: str, normalize: str | None) -> None:
    if not isinstance(max_weight, int | float) or not 1 <= max_weight < math.inf:
        raise InputError(
            f"max_weight must be a finite number of at least 1, got {max_weight!r}. 1 means no "
            "weighting."
        )
    if scaling not in ("max", "min-max"):
        raise InputError(
            f"scaling must be 'max' or 'min-max', got {scaling!r}. Choose one of the two."
        )
    if normalize not in (None, "mean"):
        raise InputError(
            f"normalize must be 'mean' or None, got {normalize!r}. Choose one of the two."
        )


BLOCK = 1024


def neighbor_log_density(square_distance: Tensor, k: int, dimension: int) -> Tensor:
    r"""The density from the distance r to the k-th neighbor, the sample itself counted.

    .. math:: \log p = \log\frac{k-1}{n-1} - \log V_d - d \log r, \qquad V_d = \pi^{d/2} / \Gamma(d/2 + 1)

    A sample with k or more copies has r = 0; it gets the smallest r > 0 of all.

    >>> neighbor_log_density(torch.tensor([1.0, 4.0]), k=2, dimension=1).exp()
    tensor([0.5000, 0.2500], dtype=torch.float64)
    """
    square = square_distance.double()
    if not bool((square > 0).any()):
        return torch.zeros_like(square)
    square = square.clamp_min(float(square[square > 0].min()))
    volume = dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2 + 1)
    return math.log((k - 1) / max(1, len(square) - 1)) - volume - dimension / 2 * square.log()


def kernel_log_density(features: Tensor, bandwidth: float | None = None) -> Tensor:
    r"""The density from Gaussian kernels on all other samples.

    .. math:: \log p(x_i) = \log \frac{1}{n-1} \sum_{j \ne i} \prod_c N(x_{ic};\, x_{jc},\, (h\sigma_c)^2)

    ``bandwidth`` h is in standard deviations σ of each feature; by default Scott's
    ``n^(-1/(d+4))``. Leaving the sample itself out keeps the estimate from being its own kernel
    alone where data are sparse.
    """
    rows, log_scale = _standardized(features)
    count, dimension = rows.shape
    h = count ** (-1 / (dimension + 4)) if bandwidth is None else bandwidth
    if not h > 0:
        raise InputError(
            f"bandwidth must be a number above 0, got {bandwidth!r}. It is in standard deviations."
        )
    rows = rows / h
    constant = (
        math.log(max(1, count - 1))
        + dimension * (math.log(h) + 0.5 * math.log(2 * math.pi))
        + log_scale
    )
    parts = [_kernel_sums(rows, start) for start in range(0, count, BLOCK)]
    return torch.cat(parts) - constant


def _kernel_sums(rows: Tensor, start: int) -> Tensor:
    block = rows[start : start + BLOCK]
    exponent = -0.5 * torch.cdist(block, rows, compute_mode="use_mm_for_euclid_dist").square()
    exponent[torch.arange(len(block)), torch.arange(start, start + len(block))] = -torch.inf
    return exponent.logsumexp(1)


def mixture_log_density(
    features: Tensor,
    components: int = 8,
    *,
    seed: int = 0,
    iterations: int = 100,
    tolerance: float = 1e-6,
) -> Tensor:
    r"""The density of a mixture of Gaussians with full covariance, fitted by expectation-maximization.

    .. math:: \log p(x) = \log \sum_c \pi_c N(x; \mu_c, \Sigma_c)

    No component is narrower than a thousandth of a feature's standard deviation, which keeps its
    covariance invertible. Fewer different samples than components get a component each.
    """
    rows, log_scale = _standardized(features)
    if not 1 <= components <= len(rows):
        raise InputError(
            f"components must be an integer from 1 to {len(rows)} (all samples), got "
            f"{components!r}. Lower it."
        )
    components = min(components, len(rows.unique(dim=0)))
    mixture = fit_mixture(
        rows,
        components=components,
        restarts=1,
        floor=1e-3,
        tolerance=tolerance,
        max_iterations=iterations,
        seed=seed,
    )
    return mixture.log_density(rows) - log_scale


def _standardized(features: Tensor) -> tuple[Tensor, float]:
    """Features over their standard deviations, and the logarithm of the product of these."""
    rows = features.detach().double()
    rows = rows - rows.mean(0)
    deviation = rows.square().mean(0).sqrt()
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return rows / deviation, float(deviation.log().sum())
