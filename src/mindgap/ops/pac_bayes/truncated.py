"""Lemma 4: PAC-Bayes for truncated Gaussian noise that is fitted to the Hessian."""

import math
from typing import Any

import torch

from mindgap.core import InputError, implements, integer
from mindgap.ops.pac_bayes.bounds import truncated_gaussian_kl, truncated_kl_limit, truncation
from mindgap.ops.pac_bayes.hessian import Fitted, check_local, vectors


@implements("P4", cites=("wang2018identifying",))
def lemma4(
    empirical: float,
    weights: Any,
    curvature: Any,
    radius: Any,
    *,
    prior_variance: float,
    lipschitz: float,
    eta: float,
    samples: int,
    delta: float,
    as_published: bool = False,
) -> Fitted:
    r"""Bound the risk under truncated Gaussian noise that is fitted to the Hessian: Lemma 4.

    Formula: $\sigma_i = \min\left( \frac{1}{\sqrt{\eta H_{ii} + \eta \rho \sqrt{m} \kappa_i / 3 +
    1/\tau}}, \frac{\kappa_i}{\sqrt{2}\, \mathrm{erf}^{-1}(1 - \frac{1}{2m})} \right)$

    Reading: As Lemma 3, with Gaussian noise and the prior N(0, τI). The truncation keeps the noise
    where the curvature is known.

    Assumes: Independent samples; a training loss in [0, 1] that is convex and has a Lipschitz
    Hessian within the radius; η and τ chosen before the data were seen; the sum of the squared
    weights is at most τ.

    Args:
        empirical: Training loss at the weights.
        weights: Weights w.
        curvature: Diagonal H of the Hessian.
        radius: Radius κ of the neighborhood, per weight.
        prior_variance: Variance τ of the prior.
        lipschitz: Lipschitz constant ρ of the Hessian.
        eta: η.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.
        as_published: Give (15) and (14) with the scales of (16) as printed. There the factor η of
            the ρ term is missing, erf⁻¹(1/2m) replaces erf⁻¹(1 - 1/2m), and (12) is left out.

    Returns:
        The scales, the bound with inequality (12) for the truncation, and the tighter one with the
        exact KL.

    >>> flat, sharp = (
    ...     lemma4(
    ...         0.1,
    ...         [1.0],
    ...         [h],
    ...         [0.5],
    ...         prior_variance=2.0,
    ...         lipschitz=0.0,
    ...         eta=100.0,
    ...         samples=1000,
    ...         delta=0.05,
    ...     )
    ...     for h in (0.01, 100.0)
    ... )
    >>> [round(float(found.scales), 4) for found in (flat, sharp)], flat.tight < sharp.tight
    ([0.7413, 0.01], True)
    """
    center, diagonal, reach = vectors(weights, curvature, radius)
    check_local(empirical, diagonal, reach, lipschitz, eta, samples, delta)
    if float(center.square().sum()) > prior_variance * (1 + 1e-12):
        raise InputError(
            "prior_variance must be at least the sum of the squared weights "
            f"({float(center.square().sum()):.6g}), got {prior_variance}. Raise it, without "
            "looking at the data."
        )
    third = lipschitz * math.sqrt(len(diagonal)) * reach
    precision = eta * diagonal + (1 if as_published else eta) * third / 3 + 1 / prior_variance
    # Inequality (12) needs all m coordinates inside the radius with probability ½ or more, which
    # caps the standard deviation at the radius over the truncation point.
    scales = torch.minimum(
        precision.rsqrt(), reach / truncation_point(len(diagonal), as_published=as_published)
    )
    squares, fixed = scales.square(), math.log(1 / delta) / eta + eta / (2 * samples)
    spread = len(diagonal) * math.log(prior_variance) - float(squares.log().sum()) + 1
    whole = (spread - len(diagonal) + float(squares.sum()) / prior_variance) / 2  # (13)
    rise = float(((diagonal / 2 + third / 6) * squares).sum())
    if as_published:
        return Fitted(
            scales, empirical + spread / (2 * eta) + fixed, empirical + rise + whole / eta + fixed
        )
    # The truncated noise has less variance than the whole Gaussian, so the loss rises less.
    kept = float(((diagonal / 2 + third / 6) * squares * truncation(reach / scales)[1]).sum())
    exact = truncated_gaussian_kl(center, scales, reach, prior_variance)
    return Fitted(
        scales,
        empirical + rise + truncated_kl_limit(whole) / eta + fixed,
        empirical + kept + exact / eta + fixed,
    )


def truncation_point(parameters: int, *, as_published: bool = False) -> float:
    r"""Compute κ/σ at which m Gaussians stay within κ with probability ½ or more.

    It is :math:`\sqrt2\,\mathrm{erf}^{-1}(1 - 1/2m)`: by the union bound, each may leave with
    probability 1/2m.

    Args:
        parameters: Number m of weights.
        as_published: Use erf⁻¹(1/2m) as printed, with which nearly all noise leaves.

    >>> round(truncation_point(1), 4), round(truncation_point(1000), 4)
    (0.6745, 3.4808)
    """
    tail = 1 / (2 * integer("parameters", parameters))
    inside = torch.tensor(tail if as_published else 1 - tail, dtype=torch.float64)
    return math.sqrt(2) * float(torch.erfinv(inside))
