"""Sample weights from local variance: scaling, controls, density, suspect labels."""

import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, implements
from mindgap.core.checks import matches

Scaling = Literal["max", "min-max"]
Normalize = Literal["mean"]
BLOCK = 1024  # samples whose kernels are summed at once


@implements("V5", cites=("novello2020variance",))
def scale_weights(
    variance: Tensor,
    max_weight: float,
    *,
    scaling: Scaling = "max",
    normalize: Normalize | None = None,
) -> Tensor:
    r"""Scale local variances to sample weights between 1 and ``max_weight``.

    Formula: $w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}$

    Reading: Samples whose labels vary most among their neighbors get the weight m, samples in calm
    regions the weight 1. If no variance is above zero, all weights are 1.

    Assumes: The variances are at least zero. Their ratios carry the information, not their scale.

    Args:
        variance: One local variance v per sample.
        max_weight: The largest weight m; 1 means no weighting.
        scaling: ``"max"`` as in the formula, or ``"min-max"``, which subtracts the smallest
            variance first, so that the smallest weight is always 1.
        normalize: ``"mean"`` divides by the mean weight, so that weighted training takes steps of
            the same size as unweighted training.

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


def _check(max_weight: float, scaling: str, normalize: str | None) -> None:
    if not matches(max_weight, float) or not 1 <= max_weight < math.inf:
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


def mean(values: Tensor) -> float:
    """Compute the mean from an exact sum, which does not depend on the order of the values.

    >>> mean(torch.tensor([1e16, 1.0, -1e16], dtype=torch.float64)) == 1 / 3
    True
    """
    return math.fsum(values.tolist()) / len(values)


def permuted(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Assign the same weights to other samples: a control.

    A gain that permuted weights also achieve is not due to the local variance.

    Args:
        weights: One weight per sample.
        generator: Source of the permutation.

    >>> permuted(torch.tensor([1.0, 2.0, 5.0]), torch.Generator().manual_seed(0)).sort().values
    tensor([1., 2., 5.])
    """
    return weights[torch.randperm(len(weights), generator=generator)]


def uniform(weights: Tensor) -> Tensor:
    """Give every sample the weight 1: a control."""
    return torch.ones_like(weights)


@implements("V6", cites=("novello2020variance",))
def density_corrected(variance: Tensor, log_density: Tensor, winsorize: float = 0.05) -> Tensor:
    r"""Divide local variances by an estimated density, as importance weighting asks.

    Formula: $w_i = c \frac{v_i}{p_X(x_i)}$

    Reading: Samples in sparse regions gain. The sample of highest density keeps its variance.

    Assumes: A usable density estimate. Estimates differ by hundreds of powers of ten between
    samples, so their logarithms are winsorized: values outside the ``winsorize`` and
    ``1 - winsorize`` quantiles are moved onto these quantiles.

    Args:
        variance: One local variance per sample.
        log_density: Logarithm of the density at each sample, by :func:`neighbor_log_density`,
            :func:`kernel_log_density` or :func:`mixture_log_density`.
        winsorize: Share of the smallest and of the largest densities to pull in.

    >>> density_corrected(
    ...     torch.ones(3), torch.tensor([0.0, -1.0, -2.0]), winsorize=0
    ... ).log().tolist()
    [0.0, 1.0, 2.0]
    """
    if not 0 <= winsorize < 0.5:
        raise InputError(
            f"winsorize must be a number from 0 to below 0.5, got {winsorize!r}. Try 0.05."
        )
    density = log_density.double()
    ordered = density.sort().values
    # The quantile is an element, not an interpolation: an infinite density must not enter the
    # arithmetic.
    cut = int(winsorize * len(ordered))
    density = density.clamp(ordered[cut], ordered[-1 - cut])
    # exp overflows a double at 709; 600 leaves a margin for the product with the variance.
    rarity = (density.max() - density).clamp_max(600)
    return variance.double() * rarity.exp()


def neighbor_log_density(square_distance: Tensor, k: int, dimension: int) -> Tensor:
    r"""Estimate the log density from the distance r to the k-th neighbor.

    .. math:: \log p = \log\frac{k-1}{n-1} - \log V_d - d \log r, \qquad V_d = \pi^{d/2} / \Gamma(d/2 + 1)

    A sample with k or more copies has r = 0; it gets the smallest r > 0 of all.

    Args:
        square_distance: Squared distance r² of each sample to its k-th neighbor.
        k: Number of neighbors, the sample itself included.
        dimension: Number d of features.

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
    r"""Estimate the log density by Gaussian kernels on all other samples.

    .. math:: \log p(x_i) = \log \frac{1}{n-1} \sum_{j \ne i} \prod_c N(x_{ic};\, x_{jc},\, (h\sigma_c)^2)

    The sample itself is left out: in sparse regions its own kernel would dominate the estimate.

    Args:
        features: One row per sample.
        bandwidth: h, in standard deviations σ of each feature; Scott's ``n^(-1/(d+4))`` if None.

    >>> crowded, lonely = kernel_log_density(torch.tensor([[0.0], [0.1], [0.2], [5.0]]))[[1, 3]]
    >>> bool(crowded > lonely)
    True
    """
    rows, log_scale = _standardized(features)
    count, dimension = rows.shape
    h = count ** (-1 / (dimension + 4)) if bandwidth is None else bandwidth
    if not h > 0:
        raise InputError(
            f"bandwidth must be a number above 0, got {bandwidth!r}. Pass it in standard "
            "deviations."
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
    r"""Estimate the log density by a mixture of Gaussians with full covariance.

    .. math:: \log p(x) = \log \sum_c \pi_c N(x; \mu_c, \Sigma_c)

    No component is narrower than a thousandth of a feature's standard deviation, which keeps its
    covariance invertible.

    Args:
        features: One row per sample.
        components: Number of Gaussians, reduced to the number of distinct samples.
        seed: Seed of the initialization.
        iterations: Most iterations of expectation-maximization.
        tolerance: It stops when an iteration raises the mean log-likelihood by less.

    >>> features = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1]])
    >>> found = mixture_log_density(features, components=2)
    >>> found.shape, bool(found.isfinite().all())
    (torch.Size([5]), True)
    """
    # Mixtures bring six modules, and weights are mostly computed without a density.
    from mindgap.ops.mixture.fit import fit_mixture

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
    """Divide features by their standard deviations; also return the log of their product."""
    rows = features.detach().double()
    rows = rows - rows.mean(0)
    deviation = rows.square().mean(0).sqrt()
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return rows / deviation, float(deviation.log().sum())


@implements("V10", cites=("novello2020variance",))
def suspects(agreement: Tensor, threshold: float = 0.1) -> Tensor:
    r"""Mark the samples whose class few of their neighbors share: their label may be wrong.

    Formula: $\frac{1}{k-1} \left( \sum_{j \in S_k(i)} [y_j = y_i] - 1 \right) \le t$

    Reading: True means that hardly any neighbor confirms the label. Where classes overlap much,
    many correct labels are marked too.

    Assumes: Class labels, and features in which neighbors usually share their class.

    Args:
        agreement: Share of each sample's other neighbors that have its class, from
            ``local_variance(..., agreement=True)``.
        threshold: Largest share t at which a sample is marked.

    >>> suspects(torch.tensor([0.0, 0.1, 0.9])).tolist()
    [True, True, False]
    """
    if not 0 <= threshold <= 1:
        raise InputError(
            f"threshold must be a number from 0 to 1, got {threshold!r}. Pass a share of neighbors."
        )
    return agreement <= threshold + 1e-12


def outliers(deviation: Tensor, threshold: float = 5.0) -> Tensor:
    """Mark the samples whose value lies far from those of their neighbors: it may be wrong.

    Args:
        deviation: Distance of each sample's value from the mean of its other neighbors, in their
            standard deviations, from ``local_variance(..., agreement=True)``.
        threshold: Number of standard deviations beyond which a sample is marked.

    >>> outliers(torch.tensor([0.5, 9.0, torch.inf])).tolist()
    [False, True, True]
    """
    if not threshold > 0:
        raise InputError(
            f"threshold must be above 0, got {threshold!r}. Pass a number of standard deviations."
        )
    return deviation > threshold
