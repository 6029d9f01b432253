"""How densely samples lie, as the logarithm of an estimated density: by neighbours, by kernels, by a mixture."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mindgap.core.errors import InputError
from mindgap.ops.mixture import fit_mixture

BLOCK = 1024


def neighbor_log_density(square_distance: Tensor, k: int, dimension: int) -> Tensor:
    r"""The density from the distance r to the k-th neighbour, the sample itself counted.

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

    ``bandwidth`` h is in standard deviations σ of each feature; by default Scott's ``n^(-1/(d+4))``. Leaving the
    sample itself out keeps the estimate from being its own kernel alone where data are sparse.
    """
    rows, log_scale = _standardized(features)
    count, dimension = rows.shape
    h = count ** (-1 / (dimension + 4)) if bandwidth is None else bandwidth
    if not h > 0:
        raise InputError(f"bandwidth must be a number above 0, got {bandwidth!r}. It is in standard deviations.")
    rows = rows / h
    constant = math.log(max(1, count - 1)) + dimension * (math.log(h) + 0.5 * math.log(2 * math.pi)) + log_scale
    parts = [_kernel_sums(rows, start) for start in range(0, count, BLOCK)]
    return torch.cat(parts) - constant


def _kernel_sums(rows: Tensor, start: int) -> Tensor:
    block = rows[start : start + BLOCK]
    exponent = -0.5 * torch.cdist(block, rows, compute_mode="use_mm_for_euclid_dist").square()
    exponent[torch.arange(len(block)), torch.arange(start, start + len(block))] = -torch.inf
    return exponent.logsumexp(1)


def mixture_log_density(
    features: Tensor, components: int = 8, *, seed: int = 0, iterations: int = 100, tolerance: float = 1e-6
) -> Tensor:
    r"""The density of a mixture of Gaussians with full covariance, fitted by expectation-maximisation.

    .. math:: \log p(x) = \log \sum_c \pi_c N(x; \mu_c, \Sigma_c)

    No component is narrower than a thousandth of a feature's standard deviation, which keeps its covariance
    invertible. Fewer different samples than components get a component each.
    """
    rows, log_scale = _standardized(features)
    if not 1 <= components <= len(rows):
        raise InputError(
            f"components must be an integer from 1 to {len(rows)} (all samples), got {components!r}. Lower it."
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
