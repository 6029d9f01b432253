r"""pacGen, the sum of logarithms that remains of Lemma 3 when all that is the same for two models is dropped.

:math:`\Psi_\kappa = \sum_i \ln\left( (|w_i| + \kappa_i) \max\left( \sqrt{\max(0, H_{ii} + \rho \sqrt m \kappa_i)},
1/\kappa_i \right) \right)` with :math:`\kappa_i = \gamma |w_i| + \epsilon`. Where the second entry of the outer maximum
wins, the weight is *capped*: its term does not see the curvature. Where all are, Ψ is :func:`pacgen_null`.
"""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import number

GAMMA, EPSILON = 0.1, 0.1  # the paper's, for all its experiments with the metric


@dataclasses.dataclass(frozen=True)
class PacGenTerms:
    """One entry per weight: its term of Ψ, whether the inner root was clipped at zero, whether the curvature is unseen.

    ``terms.sum(-1)`` is Ψ.
    """

    terms: Tensor
    clipped: Tensor
    capped: Tensor


def radii(weights: Tensor, gamma: float = GAMMA, epsilon: float = EPSILON) -> Tensor:
    """How far the noise on each weight may reach: a part of its size, and a little more."""
    return number("gamma", gamma) * weights.abs() + number("epsilon", epsilon)


def pacgen_parts(
    weights: Tensor,
    diagonal: Tensor,
    lipschitz: float | Tensor,
    *,
    gamma: float = GAMMA,
    epsilon: float = EPSILON,
) -> PacGenTerms:
    """What each weight adds to Ψ; the last dimension counts the weights, leading ones are broadcast.

    ``diagonal`` is the diagonal of the Hessian of the training loss, ``lipschitz`` the Lipschitz
    constant ρ of the Hessian (a tensor has one entry for each leading index). A weight of radius
    zero has an infinite term.

    >>> parts = pacgen_parts(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([400.0, 1.0, -9.0]), 0.0)
    >>> [
    ...     round(value, 4) for value in parts.terms.tolist()
    ... ]  # ln(1.2 * 20), ln(0.1 / 0.1), ln(1.2 / 0.2)
    [3.1781, 0.0, 1.7918]
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
    """The terms with a Hessian that is zero everywhere: what the sizes of the weights say alone.

    >>> round(float(pacgen_null(torch.tensor([1.0, -1.0])).sum()), 4)  # 2 ln(1.2 / 0.2)
    3.5835
    """
    radius = radii(weights, gamma, epsilon)
    return (weights.abs() + radius).log() - radius.log()
