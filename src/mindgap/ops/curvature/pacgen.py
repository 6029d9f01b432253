"""pacGen Ψ: the bound of Lemma 3 without the terms that all models share."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import implements, number

GAMMA, EPSILON = 0.1, 0.1  # the paper's, for all its experiments with the metric


@dataclasses.dataclass(frozen=True)
class PacGenTerms:
    """What each weight adds to Ψ, one entry per weight.

    Attributes:
        terms: The terms; ``terms.sum(-1)`` is Ψ.
        clipped: Whether the curvature was negative and counts as zero.
        capped: Whether 1/κ exceeds the root of the curvature, which then does not matter.
    """

    terms: Tensor
    clipped: Tensor
    capped: Tensor


def radii(weights: Tensor, gamma: float = GAMMA, epsilon: float = EPSILON) -> Tensor:
    """Compute the radius κ = γ|w| + ε of the noise on each weight.

    Args:
        weights: The weights.
        gamma: Relative part γ.
        epsilon: Absolute part ε.

    >>> radii(torch.tensor([2.0, -1.0]))
    tensor([0.3000, 0.2000])
    """
    return number("gamma", gamma) * weights.abs() + number("epsilon", epsilon)


@implements("P6", cites=("wang2018identifying",))
def pacgen_parts(
    weights: Tensor,
    diagonal: Tensor,
    lipschitz: float | Tensor,
    *,
    gamma: float = GAMMA,
    epsilon: float = EPSILON,
) -> PacGenTerms:
    r"""Compute what each weight adds to pacGen Ψ.

    Formula: $\Psi_\kappa = \sum_i \ln\left( (|w_i| + \kappa_i) \max\left( \sqrt{\max(0, H_{ii} +
    \rho \sqrt{m} \kappa_i)}, \frac{1}{\kappa_i} \right) \right), \quad \kappa_i = \gamma |w_i| +
    \epsilon$

    Reading: Large means large weights at a sharp minimum. Where 1/κ wins the maximum, the weight is
    capped: its curvature does not matter.

    Assumes: A Hessian with Lipschitz constant ρ within the radius κ. Ψ ranks models of the same
    size; it is not a bound.

    Args:
        weights: The weights in the last dimension; leading dimensions are broadcast.
        diagonal: Diagonal of the Hessian of the training loss.
        lipschitz: Lipschitz constant ρ of the Hessian; a tensor has one entry per leading index.
        gamma: Relative part γ of the radius.
        epsilon: Absolute part ε of the radius; a weight of radius zero has an infinite term.

    >>> parts = pacgen_parts(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([400.0, 1.0, -9.0]), 0.0)
    >>> wanted = [math.log(1.2 * 20), math.log(0.1 / 0.1), math.log(1.2 / 0.2)]
    >>> torch.allclose(parts.terms, torch.tensor(wanted), atol=1e-6)
    True
    >>> parts.clipped.tolist(), parts.capped.tolist()
    ([False, False, True], [False, True, True])
    """
    radius = radii(weights, gamma, epsilon)
    rho = torch.as_tensor(lipschitz, dtype=weights.dtype, device=weights.device).unsqueeze(-1)
    curvature = diagonal + rho * math.sqrt(weights.shape[-1]) * radius
    seen, least = curvature.clamp(min=0).sqrt(), 1 / radius
    terms = (weights.abs() + radius).log() + torch.maximum(seen, least).log()
    return PacGenTerms(terms, curvature < 0, seen <= least)


def pacgen_null(weights: Tensor, *, gamma: float = GAMMA, epsilon: float = EPSILON) -> Tensor:
    """Compute the terms of Ψ with a zero Hessian: what the magnitudes of the weights say alone.

    Args:
        weights: The weights in the last dimension.
        gamma: Relative part γ of the radius.
        epsilon: Absolute part ε of the radius.

    >>> round(float(pacgen_null(torch.tensor([1.0, -1.0])).sum()), 4) == round(2 * math.log(6), 4)
    True
    """
    radius = radii(weights, gamma, epsilon)
    return (weights.abs() + radius).log() - radius.log()
