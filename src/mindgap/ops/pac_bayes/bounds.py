r"""PAC-Bayes bounds as plain arithmetic: the risk of a random model from what its training error and its KL price say.

A posterior over models may depend on the data, the prior may not. With probability :math:`1 -
\delta` over n independent samples and a loss in [0, 1], every posterior at once has its expected
risk below each of these. All take ``empirical`` (the expected training loss of the random model),
``kl`` (posterior from prior), ``samples`` and ``delta``.

Kullback–Leibler divergences of noise around a model's weights from a prior, in nats, in double
precision.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, integer, kl_inverse, number

LARGEST_STEEPNESS = 4.0  # beyond it Catoni's bound is far above the best for any training error that is worth a bound


def check(empirical: float, kl: float, samples: int, delta: float) -> None:
    """Raise one sentence for the first number that no PAC-Bayes bound can take."""
    if not 0 <= empirical <= 1:
        raise InputError(
            f"empirical must be a number from 0 to 1, got {empirical}. Rescale the loss."
        )
    number("kl", kl)
    integer("samples", samples)
    if not 0 < delta < 1:
        raise InputError(
            f"delta must be a number above 0 and below 1, got {delta}. Pass a probability such as "
            "0.05."
        )


def hoeffding(
    empirical: float,
    kl: float,
    samples: int,
    delta: float,
    *,
    eta: float | None = None,
    sharp: bool = False,
) -> float:
    r"""Theorem 1: :math:`\hat L + (KL + \ln(1/\delta))/\eta + \eta/2n`.

    ``eta`` must have been chosen before the data were seen; without it, the smallest over the grid of
    :func:`hoeffding_grid`, all of whose members hold at once. Hoeffding's lemma for a loss in [0, 1] gives
    :math:`\eta/8n`; the printed :math:`\eta/2n` is what a loss in [-1, 1] needs. ``sharp`` uses the former.

    >>> round(hoeffding(0.1, 10.0, 1000, 0.05, eta=150.0), 6)
    0.261638
    """
    check(empirical, kl, samples, delta)
    divisor = 8 if sharp else 2
    if eta is None:
        return empirical + min(
            _above(kl, samples, divisor, hoeffding_grid(delta, samples, sharp=sharp))
        )
    if not 0 < eta < math.inf:
        raise InputError(
            f"eta must be a finite number above 0, got {eta}. Choose it before the data are seen."
        )
    return empirical + (kl + math.log(1 / delta)) / eta + eta / (divisor * samples)


def hoeffding_grid(
    delta: float, samples: int, *, sharp: bool = False
) -> Iterator[tuple[float, float]]:
    r"""Appendix D: the pairs :math:`\eta_j = e^j \sqrt{2 n \ln(1/\delta_j)}`, :math:`\delta_j = \delta 2^{-(j+1)}`.

    The grid has no end; :func:`hoeffding` leaves it where a larger step cannot pay any more.
    ``sharp`` takes 8n for 2n.

    >>> round(next(hoeffding_grid(0.05, 1000))[0], 1)
    85.9
    """
    place = 0
    while True:
        price = math.log(1 / delta) + (place + 1) * math.log(2)
        yield math.exp(place) * math.sqrt((8 if sharp else 2) * samples * price), price
        place += 1


def _above(
    kl: float, samples: int, divisor: int, grid: Iterator[tuple[float, float]]
) -> Iterator[float]:
    best = math.inf
    for eta, price in grid:
        linear = eta / (divisor * samples)
        if linear >= best:
            return
        best = min(best, (kl + price) / eta + linear)
        yield (kl + price) / eta + linear


def budget(kl: float, samples: int, delta: float) -> float:
    r"""Maurer's price of one sample: :math:`(KL + \ln(2\sqrt n/\delta))/n`."""
    return (kl + math.log(2 * math.sqrt(samples) / delta)) / samples


def small_kl(empirical: float, kl: float, samples: int, delta: float) -> float:
    r"""Langford and Seeger, Maurer's constant: the largest p with :math:`\mathrm{kl}(\hat L \Vert p)` in the budget.

    >>> round(small_kl(0.02, 500, 60_000, 0.05), 6)
    0.043924
    """
    check(empirical, kl, samples, delta)
    return kl_inverse(empirical, budget(kl, samples, delta))


def mcallester(empirical: float, kl: float, samples: int, delta: float) -> float:
    r""":math:`\hat L + \sqrt{(KL + \ln(2\sqrt n/\delta))/2n}`, which Pinsker's inequality makes of :func:`small_kl`.

    >>> mcallester(0.02, 500, 60_000, 0.05) > small_kl(0.02, 500, 60_000, 0.05)
    True
    """
    check(empirical, kl, samples, delta)
    return empirical + math.sqrt(budget(kl, samples, delta) / 2)


def quadratic(empirical: float, kl: float, samples: int, delta: float) -> float:
    r""":math:`(\sqrt{\hat L + B} + \sqrt B)^2`, B half of Maurer's price: tighter than McAllester's at small risks.

    >>> round(quadratic(0.0, 0.0, 100, 0.05), 6)  # four times the half price
    0.119829
    """
    check(empirical, kl, samples, delta)
    half = budget(kl, samples, delta) / 2
    return (math.sqrt(empirical + half) + math.sqrt(half)) ** 2


def catoni(
    empirical: float, kl: float, samples: int, delta: float, *, steepness: float | None = None
) -> float:
    r"""Catoni: :math:`(1 - \exp(-C \hat L - (KL + \ln(1/\delta))/n)) / (1 - e^{-C})`.

    C, the ``steepness``, must have been chosen before the data were seen; without it, the smallest over the grid
    :math:`C_j = 4 \cdot 2^{-j}` down to about :math:`1/\sqrt n`, whose members share ``delta`` equally.

    >>> round(catoni(0.02, 500, 60_000, 0.05), 4), round(small_kl(0.02, 500, 60_000, 0.05), 4)
    (0.0443, 0.0439)
    """
    check(empirical, kl, samples, delta)
    if steepness is not None:
        if not 0 < steepness < math.inf:
            raise InputError(
                f"steepness must be a finite number above 0, got {steepness}. Choose it before "
                "the data."
            )
        return _catoni(empirical, (kl + math.log(1 / delta)) / samples, steepness)
    grid = catoni_grid(samples)
    price = (kl + math.log(len(grid) / delta)) / samples
    return min(_catoni(empirical, price, member) for member in grid)


def catoni_grid(samples: int) -> list[float]:
    """Steepnesses from 4 down to about one over the root of the number of samples, each half of the one before.

    >>> catoni_grid(4)
    [4.0, 2.0, 1.0, 0.5]
    """
    return [
        LARGEST_STEEPNESS / 2**step
        for step in range(1 + math.ceil(math.log2(4 * math.sqrt(samples))))
    ]


def _catoni(empirical: float, price: float, steepness: float) -> float:
    return math.expm1(-steepness * empirical - price) / math.expm1(-steepness)


def monte_carlo(mean: float, draws: int, delta: float) -> float:
    r"""Upper confidence limit of a mean in [0, 1] from N independent draws: kl inverse of :math:`\ln(2/\delta)/N`.

    >>> round(monte_carlo(0.02, 1000, 0.01), 4)
    0.0379
    """
    check(mean, 0.0, integer("draws", draws), delta)
    return kl_inverse(mean, math.log(2 / delta) / draws)


def gaussian_kl(mean: Any, scale: Any, prior_mean: Any, prior_scale: Any) -> float:
    """KL of a diagonal Gaussian from another; scales are standard deviations.

    >>> gaussian_kl([1.0, 0.0], 0.5, 0.0, 0.5)
    2.0
    """
    center, spread, start, width = _together(mean, scale, prior_mean, prior_scale)
    _positive("scale", spread)
    _positive("prior_scale", width)
    ratio = spread / width
    return float(
        (-ratio.log() + (ratio.square() + ((center - start) / width).square() - 1) / 2).sum()
    )


def uniform_kl(center: Any, scale: Any, limit: Any) -> float:
    """KL of U(center - scale, center + scale) from U(-limit, limit): the sum of ln(limit / scale).

    >>> round(uniform_kl([0.5, -1.0], 0.5, 2.0), 6) == round(2 * math.log(4), 6)
    True
    """
    middle, spread, outer = _together(center, scale, limit)
    _positive("scale", spread)
    if bool((middle.abs() + spread > outer * (1 + 1e-12)).any()):
        worst = int((middle.abs() + spread - outer).argmax())
        raise InputError(
            "limit must contain the noise, |center| + scale <= limit, got "
            f"{float(middle[worst].abs()):.6g} + "
            f"{float(spread[worst]):.6g} > {float(outer[worst]):.6g} at weight {worst}. Raise "
            "limit or lower scale."
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
    center, spread, reach = _together(mean, scale, radius)
    _positive("scale", spread)
    _positive("radius", reach)
    mass, share = truncation(reach / spread)
    own = -mass.log() - spread.log() - share / 2
    prior = math.log(prior_variance) / 2 + (center.square() + spread.square() * share) / (
        2 * prior_variance
    )
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
            "Means, scales and limits must have one entry per weight or one for all, got "
            f"{sorted(lengths)} entries. "
            "Give all of them for the same weights."
        )
    return tuple(torch.broadcast_tensors(*tensors))


def _positive(name: str, values: Tensor) -> None:
    if not bool(((values > 0) & torch.isfinite(values)).all()):
        raise InputError(
            f"{name} must be finite numbers above 0, got {float(values.min()):.6g}. Correct it."
        )
