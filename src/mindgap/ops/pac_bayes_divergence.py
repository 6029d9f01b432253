"""Kullback–Leibler divergences of noise around a model's weights from a prior, in nats, in double precision."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mindgap.core.errors import InputError


def gaussian_kl(mean: Any, scale: Any, prior_mean: Any, prior_scale: Any) -> float:
    """KL of a diagonal Gaussian from another; scales are standard deviations.

    >>> gaussian_kl([1.0, 0.0], 0.5, 0.0, 0.5)
    2.0
    """
    centre, spread, start, width = _together(mean, scale, prior_mean, prior_scale)
    _positive("scale", spread)
    _positive("prior_scale", width)
    ratio = spread / width
    return float((-ratio.log() + (ratio.square() + ((centre - start) / width).square() - 1) / 2).sum())


def uniform_kl(centre: Any, scale: Any, limit: Any) -> float:
    """KL of U(centre - scale, centre + scale) from U(-limit, limit): the sum of ln(limit / scale).

    >>> round(uniform_kl([0.5, -1.0], 0.5, 2.0), 6) == round(2 * math.log(4), 6)
    True
    """
    middle, spread, outer = _together(centre, scale, limit)
    _positive("scale", spread)
    if bool((middle.abs() + spread > outer * (1 + 1e-12)).any()):
        worst = int((middle.abs() + spread - outer).argmax())
        raise InputError(
            f"limit must contain the noise, |centre| + scale <= limit, got {float(middle[worst].abs()):.6g} + "
            f"{float(spread[worst]):.6g} > {float(outer[worst]):.6g} at weight {worst}. Raise limit or lower scale."
        )
    return float((outer / spread).log().sum())


def truncated_kl_limit(kl: float) -> float:
    """Inequality (12): the KL of a Gaussian truncated to an event of probability ½ or more, from that of the whole.

    >>> truncated_kl_limit(3.0)
    8.0
    """
    return 2 * (kl + 1)


def truncated_gaussian_kl(mean: Any, scale: Any, radius: Any, prior_variance: float) -> float:
    """KL of Gaussian noise truncated to |u| < radius around ``mean``, from N(0, prior_variance): exact.

    >>> whole = gaussian_kl(1.0, 0.5, 0.0, 2.0)
    >>> abs(truncated_gaussian_kl(1.0, 0.5, 50.0, 4.0) - whole) < 1e-12
    True
    """
    centre, spread, reach = _together(mean, scale, radius)
    _positive("scale", spread)
    _positive("radius", reach)
    mass, share = truncation(reach / spread)
    own = -mass.log() - spread.log() - share / 2
    prior = math.log(prior_variance) / 2 + (centre.square() + spread.square() * share) / (2 * prior_variance)
    return float((own + prior).sum())


def truncation(reach: Tensor) -> tuple[Tensor, Tensor]:
    """Mass of a standard Gaussian within ``reach`` of zero, and the share of the variance that the truncated one keeps.

    >>> [round(float(value), 6) for value in truncation(torch.tensor(1.0, dtype=torch.float64))]
    [0.682689, 0.291125]
    """
    mass = torch.erf(reach / math.sqrt(2))
    density = torch.exp(-reach.square() / 2) / math.sqrt(2 * math.pi)
    return mass, 1 - 2 * reach * density / mass


def _together(*values: Any) -> tuple[Tensor, ...]:
    tensors = [torch.as_tensor(value, dtype=torch.float64).flatten() for value in values]
    lengths = {len(tensor) for tensor in tensors} - {1}
    if len(lengths) > 1:
        raise InputError(
            f"Means, scales and limits must have one entry a weight or one for all, got {sorted(lengths)} entries. "
            "Give all of them for the same weights."
        )
    return tuple(torch.broadcast_tensors(*tensors))


def _positive(name: str, values: Tensor) -> None:
    if not bool(((values > 0) & torch.isfinite(values)).all()):
        raise InputError(f"{name} must be finite numbers above 0, got {float(values.min()):.6g}. Correct it.")
