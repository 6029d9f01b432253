"""Lemma 4: PAC-Bayes for Gaussian noise that is fitted to the curvature and truncated to where it is known."""

import math
from typing import Any

import torch

from mindgap.core import InputError, integer
from mindgap.ops.pac_bayes.bounds import truncated_gaussian_kl, truncated_kl_limit, truncation
from mindgap.ops.pac_bayes.hessian import Fitted, check_local, vectors


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
    r"""Truncated Gaussian noise, prior N(0, τI) with :math:`\sum w_i^2 \le \tau` (``prior_variance``).

    ``bound`` charges for the truncation by (12), ``tight`` by its exact KL. ``as_published`` gives
    (15) and (14) with the scales of (16): there η is missing beside ρ, erf⁻¹(1/2m) stands for
    erf⁻¹(1 - 1/2m), and (12) is left out.
    """
    place, bend, reach = vectors(weights, curvature, radius)
    check_local(empirical, bend, reach, lipschitz, eta, samples, delta)
    if float(place.square().sum()) > prior_variance * (1 + 1e-12):
        raise InputError(
            "prior_variance must be at least the sum of the squared weights "
            f"({float(place.square().sum()):.6g}), "
            f"got {prior_variance}. Raise it, without looking at the data."
        )
    third = lipschitz * math.sqrt(len(bend)) * reach
    stiffness = eta * bend + (1 if as_published else eta) * third / 3 + 1 / prior_variance
    scales = torch.minimum(
        stiffness.rsqrt(), reach / truncation_point(len(bend), as_published=as_published)
    )
    squares, fixed = scales.square(), math.log(1 / delta) / eta + eta / (2 * samples)
    spread = len(bend) * math.log(prior_variance) - float(squares.log().sum()) + 1
    whole = (spread - len(bend) + float(squares.sum()) / prior_variance) / 2  # (13)
    rise = float(((bend / 2 + third / 6) * squares).sum())
    if as_published:
        return Fitted(
            scales, empirical + spread / (2 * eta) + fixed, empirical + rise + whole / eta + fixed
        )
    kept = float(((bend / 2 + third / 6) * squares * truncation(reach / scales)[1]).sum())
    exact = truncated_gaussian_kl(place, scales, reach, prior_variance)
    return Fitted(
        scales,
        empirical + rise + truncated_kl_limit(whole) / eta + fixed,
        empirical + kept + exact / eta + fixed,
    )


def truncation_point(parameters: int, *, as_published: bool = False) -> float:
    r"""κ/σ at which m Gaussians stay within κ with probability ½ or more: :math:`\sqrt2\,\mathrm{erf}^{-1}(1 - 1/2m)`.

    >>> round(truncation_point(1), 4), round(truncation_point(1000), 4)
    (0.6745, 3.4808)
    """
    tail = 1 / (2 * integer("parameters", parameters))
    inside = torch.tensor(tail if as_published else 1 - tail, dtype=torch.float64)
    return math.sqrt(2) * float(torch.erfinv(inside))
