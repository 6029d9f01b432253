r"""PAC-Bayes bounds on the risk of a stochastic classifier, and the divergences they need.

A posterior over models may depend on the data, the prior may not. With probability :math:`1 -
\delta` over n independent samples and a loss in [0, 1], the expected risk of every posterior at
once is below each of these bounds. Divergences are in nats, in double precision.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mindgap.core import InputError, implements, integer, kl_inverse, number
from mindgap.core.special import bisect
from mindgap.core.stats.proportions import binary_kl

# Of the mixture. They are fixed here, before any data: λ = ln(p(1 - q)/(q(1 - p))) is best for an
# error q and a bound p, and these span a bound 5 % above its error to one 3.6 times as large.
RATES = tuple(0.05 * 1.5**step for step in range(9))
# Beyond it Catoni's bound is far above the best one for any training error that is worth a bound.
LARGEST_INVERSE_TEMPERATURE = 4.0


def check(empirical: float, kl: float, samples: int, delta: float) -> None:
    """Raise an error for the first number that no PAC-Bayes bound can take."""
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


@implements("P1", cites=("wang2018identifying", "seldin2012pac"))
def hoeffding(
    empirical: float,
    kl: float,
    samples: int,
    delta: float,
    *,
    eta: float | None = None,
    sharp: bool = False,
) -> float:
    r"""Bound the risk of a stochastic classifier by Theorem 1, with a rate η or a grid of them.

    Formula: $\mathbb{E}_u L(w+u) \le \mathbb{E}_u \hat L(w+u) + \frac{\mathrm{KL} +
    \ln(1/\delta)}{\eta} + \frac{\eta}{2n}$

    Reading: The second term is the complexity of the posterior, the third the cost of η. Both are
    balanced at η = √(2n (KL + ln 1/δ)).

    Assumes: Independent samples, a loss in [0, 1], and a prior and η chosen before the data were
    seen. Hoeffding's lemma gives η/8n for such a loss; the printed η/2n is what [-1, 1] needs.

    Args:
        empirical: Expected training loss of the stochastic classifier.
        kl: Divergence of the posterior from the prior.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.
        eta: η; if None, the best of the grid of Appendix D, all of whose members hold at once.
        sharp: Use η/8n.

    >>> round(hoeffding(0.1, 10.0, 1000, 0.05, eta=150.0), 6)
    0.261638
    """
    check(empirical, kl, samples, delta)
    divisor = 8 if sharp else 2
    if eta is None:
        return empirical + min(
            _above(kl, samples, divisor, _hoeffding_grid(delta, samples, sharp=sharp))
        )
    if not 0 < eta < math.inf:
        raise InputError(
            f"eta must be a finite number above 0, got {eta}. Choose it before the data are seen."
        )
    return empirical + (kl + math.log(1 / delta)) / eta + eta / (divisor * samples)


def _hoeffding_grid(
    delta: float, samples: int, *, sharp: bool = False
) -> Iterator[tuple[float, float]]:
    r"""Yield the grid of Appendix D, pairs of η_j and ln(1/δ_j).

    .. math:: \eta_j = e^j \sqrt{2 n \ln(1/\delta_j)}, \qquad \delta_j = \delta 2^{-(j+1)}

    The grid has no end; :func:`hoeffding` stops where a larger η cannot be better.

    Args:
        delta: Probability δ that all members share.
        samples: Number n of samples.
        sharp: Use 8n for 2n.

    >>> round(next(_hoeffding_grid(0.05, 1000))[0], 1)
    85.9
    """
    index = 0
    while True:
        log_inverse = math.log(1 / delta) + (index + 1) * math.log(2)
        yield math.exp(index) * math.sqrt((8 if sharp else 2) * samples * log_inverse), log_inverse
        index += 1


def _above(
    kl: float, samples: int, divisor: int, grid: Iterator[tuple[float, float]]
) -> Iterator[float]:
    best = math.inf
    for eta, log_inverse in grid:
        linear = eta / (divisor * samples)
        if (
            linear >= best
        ):  # η grows along the grid, and with it the last term: no better one follows
            return
        best = min(best, (kl + log_inverse) / eta + linear)
        yield (kl + log_inverse) / eta + linear


@functools.lru_cache(maxsize=1024)
def maurer_constant(samples: int) -> float:
    r"""Compute ξ(n), the largest mean of exp(n kl(q‖p)) for the mean q of n flips of a coin.

    Formula: $\xi(n) = \sum_{k=0}^n \binom{n}{k} \left(\frac{k}{n}\right)^k
    \left(1 - \frac{k}{n}\right)^{n-k} = \sum_{j=0}^n \frac{n!}{(n-j)!\, n^j} \le 2\sqrt{n}$

    Args:
        samples: Number n of samples.

    >>> maurer_constant(2), round(maurer_constant(60_000), 1), round(2 * math.sqrt(60_000), 1)
    (2.5, 307.7, 489.9)
    """
    # The second sum is Abel's identity. Its terms fall like exp(-j²/2n), so that those beyond
    # 10√n add less than 1e-21, and none of them needs a logarithm of a factorial.
    last = min(samples, 20 + math.ceil(10 * math.sqrt(samples)))
    return 1 + float(np.cumprod(1 - np.arange(last) / samples).sum())


def complexity(kl: float, samples: int, delta: float) -> float:
    """Compute the complexity term (KL + ln(ξ(n)/δ))/n, with Maurer's exact constant ξ(n)."""
    return (kl + math.log(maurer_constant(samples) / delta)) / samples


@implements("P1", cites=("catoni2007pac", "maurer2004note", "donsker1975asymptotic"))
def mixture(empirical: float, kl: float, samples: int, delta: float) -> float:
    r"""Bound the risk of a stochastic classifier by a mixture of Catoni's and Maurer's bounds.

    Formula: $\mathbb{E}_u L(w+u) \le \max\left\{ p : \ln \frac{1}{10} \left( \sum_{j=1}^9
    e^{n(-\lambda_j q - \ln(1 - (1 - e^{-\lambda_j}) p))} + \frac{e^{n\,\mathrm{kl}(q \Vert p)}}{
    \xi(n)} \right) \le \mathrm{KL} + \ln\frac{1}{\delta} \right\}, \quad q = \mathbb{E}_u
    \hat L(w+u)$

    Reading: Within ln 10 nats it is as good as Catoni's bound with the best of nine λ and as
    Maurer's kl bound, whichever is better, and it needs no choice. Where the KL is below a nat it
    saves most of Maurer's ln ξ(n).

    Assumes: Independent samples, a loss in [0, 1], a prior chosen before the data were seen. The λ
    are fixed in the code.

    Why it holds: for one model every member of the sum has a mean of at most 1 over the samples. A
    convex function of losses in [0, 1] has its largest mean where they are 0 or 1 (Maurer), and
    there :math:`\mathbb{E} e^{-\lambda n \hat L} = (1 - (1 - e^{-\lambda}) L)^n`, and
    :math:`\mathbb{E} e^{n\,\mathrm{kl}(\hat L \Vert L)} \le \xi(n)`. With F for the logarithm in
    the formula, the mean of :math:`e^F` over prior and samples is at most 1, and by Markov's
    inequality its prior mean is below 1/δ with probability 1 - δ. Donsker and Varadhan: the
    posterior mean of F is at most KL + ln(1/δ), for all posteriors at once. F, a logarithm of a sum
    of exponentials of jointly convex functions, is jointly convex in q and p, so Jensen's
    inequality takes the posterior mean inside.
    F rises with p from q on, and falls with q, so an upper limit of q is safe.

    Args:
        empirical: Expected training loss of the stochastic classifier.
        kl: Divergence of the posterior from the prior.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.

    >>> (
    ...     round(mixture(0.0065, 0.09, 30_000, 0.04), 5),
    ...     round(small_kl(0.0065, 0.09, 30_000, 0.04), 5),
    ... )
    (0.00804, 0.00863)
    """
    check(empirical, kl, samples, delta)
    budget = kl + math.log((len(RATES) + 1) / delta)
    constant = math.log(maurer_constant(samples))

    def excess(risk: float) -> float:
        members = [samples * _tilt(empirical, risk, rate) for rate in RATES]
        members.append(samples * binary_kl(empirical, risk) - constant)
        top = max(members)
        if top == math.inf:
            return top
        return top - budget + math.log(math.fsum(math.exp(member - top) for member in members))

    return bisect(excess, empirical, 1.0)


def _tilt(empirical: float, risk: float, rate: float) -> float:
    return -rate * empirical - math.log1p(math.expm1(-rate) * risk)


@implements("P1", cites=("langford2005tutorial", "maurer2004note"))
def small_kl(empirical: float, kl: float, samples: int, delta: float) -> float:
    r"""Bound the risk of a stochastic classifier by inverting the binary KL divergence.

    Formula: $\mathbb{E}_u L(w+u) \le \max\left\{ p : \mathrm{kl}\left( \mathbb{E}_u \hat L(w+u)
    \,\Vert\, p \right) \le \frac{\mathrm{KL} + \ln(\xi(n)/\delta)}{n} \right\}$

    Reading: The tightest of the common PAC-Bayes bounds that need no parameter. McAllester's and
    the quadratic bound are relaxations of it. ξ(n) is :func:`maurer_constant`, in whose place
    papers print the larger 2√n.

    Assumes: Independent samples, a loss in [0, 1], a prior chosen before the data were seen.

    Args:
        empirical: Expected training loss of the stochastic classifier.
        kl: Divergence of the posterior from the prior.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.

    >>> round(small_kl(0.02, 500, 60_000, 0.05), 6)
    0.043911
    """
    check(empirical, kl, samples, delta)
    return kl_inverse(empirical, complexity(kl, samples, delta))


@implements("P1", cites=("maurer2004note",))
def mcallester(empirical: float, kl: float, samples: int, delta: float) -> float:
    r"""Bound the risk of a stochastic classifier by McAllester's bound.

    Formula: $\mathbb{E}_u L(w+u) \le \mathbb{E}_u \hat L(w+u) + \sqrt{\frac{\mathrm{KL} +
    \ln(\xi(n)/\delta)}{2n}}$

    Reading: Pinsker's relaxation of the kl bound. It is close to it at training errors near one
    half, and far above it at small ones.

    Assumes: Independent samples, a loss in [0, 1], a prior chosen before the data were seen.

    Args:
        empirical: Expected training loss of the stochastic classifier.
        kl: Divergence of the posterior from the prior.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.

    >>> mcallester(0.02, 500, 60_000, 0.05) > small_kl(0.02, 500, 60_000, 0.05)
    True
    """
    check(empirical, kl, samples, delta)
    return empirical + math.sqrt(complexity(kl, samples, delta) / 2)


@implements("P1", cites=("rivasplata2019pac",))
def quadratic(empirical: float, kl: float, samples: int, delta: float) -> float:
    r"""Bound the risk of a stochastic classifier by the PAC-Bayes quadratic bound.

    Formula: $\mathbb{E}_u L(w+u) \le \left( \sqrt{\mathbb{E}_u \hat L(w+u) + B} + \sqrt{B}
    \right)^2, \quad B = \frac{\mathrm{KL} + \ln(\xi(n)/\delta)}{2n}$

    Reading: Tighter than McAllester's bound at risks below one quarter, and as easy to
    differentiate.

    Assumes: Independent samples, a loss in [0, 1], a prior chosen before the data were seen.

    Args:
        empirical: Expected training loss of the stochastic classifier.
        kl: Divergence of the posterior from the prior.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.

    >>> quadratic(0.02, 500, 60_000, 0.05) < mcallester(0.02, 500, 60_000, 0.05)
    True
    """
    check(empirical, kl, samples, delta)
    half = complexity(kl, samples, delta) / 2
    return (math.sqrt(empirical + half) + math.sqrt(half)) ** 2


@implements("P1", cites=("catoni2007pac",))
def catoni(
    empirical: float,
    kl: float,
    samples: int,
    delta: float,
    *,
    inverse_temperature: float | None = None,
) -> float:
    r"""Bound the risk of a stochastic classifier by Catoni's bound.

    Formula: $\mathbb{E}_u L(w+u) \le \frac{1}{1 - e^{-C}} \left( 1 - \exp\left( -C\, \mathbb{E}_u
    \hat L(w+u) - \frac{\mathrm{KL} + \ln(1/\delta)}{n} \right) \right)$

    Reading: With the best C it equals the kl inverse without its ln ξ(n); but the best C is not
    known before the data are seen, and a grid over C costs a part of δ.

    Assumes: Independent samples, a loss in [0, 1], and a prior and C chosen before the data were
    seen.

    Args:
        empirical: Expected training loss of the stochastic classifier.
        kl: Divergence of the posterior from the prior.
        samples: Number n of samples.
        delta: Probability with which the bound may fail.
        inverse_temperature: C; if None, the best of :func:`catoni_grid`, whose members share
            ``delta`` equally.

    >>> round(catoni(0.02, 500, 60_000, 0.05), 4), round(small_kl(0.02, 500, 60_000, 0.05), 4)
    (0.0443, 0.0439)
    """
    check(empirical, kl, samples, delta)
    if inverse_temperature is not None:
        if not 0 < inverse_temperature < math.inf:
            raise InputError(
                f"inverse_temperature must be a finite number above 0, got {inverse_temperature}. "
                "Choose it before the data are seen."
            )
        term = (kl + math.log(1 / delta)) / samples
        return _catoni(empirical, term, inverse_temperature)
    grid = catoni_grid(samples)
    term = (kl + math.log(len(grid) / delta)) / samples
    return min(_catoni(empirical, term, member) for member in grid)


def catoni_grid(samples: int) -> list[float]:
    r"""List inverse temperatures from 4 down to about :math:`1/\sqrt n`, each half of the last.

    >>> catoni_grid(4)
    [4.0, 2.0, 1.0, 0.5]
    """
    return [
        LARGEST_INVERSE_TEMPERATURE / 2**step
        for step in range(1 + math.ceil(math.log2(4 * math.sqrt(samples))))
    ]


def _catoni(empirical: float, term: float, inverse_temperature: float) -> float:
    return math.expm1(-inverse_temperature * empirical - term) / math.expm1(-inverse_temperature)


def monte_carlo(mean: float, draws: int, delta: float) -> float:
    r"""Compute an upper confidence limit of a mean in [0, 1] from independent draws.

    It is the kl inverse of :math:`\ln(1/\delta)/N`, by Chernoff's bound (Hoeffding 1963, Theorem
    1). The limit is needed on one side only, so δ is not halved. The draws need not be identically
    distributed.

    Args:
        mean: Mean of the draws.
        draws: Their number N.
        delta: Probability with which the limit may fail.

    >>> round(monte_carlo(0.02, 1000, 0.01), 4)
    0.0365
    """
    check(mean, 0.0, integer("draws", draws), delta)
    return kl_inverse(mean, math.log(1 / delta) / draws)


# By every name under which a certificate shows a bound; the first is the one chosen in advance.
THEOREMS: dict[str, Callable[[float, float, int, float], float]] = {
    "mixture": mixture,
    "kl": small_kl,
    "quadratic": quadratic,
    "mcallester": mcallester,
    "catoni": catoni,
}


def gaussian_kl(mean: Any, scale: Any, prior_mean: Any, prior_scale: Any) -> float:
    """Compute the KL of one diagonal Gaussian from another.

    Args:
        mean: Means of the posterior, one per weight or one for all.
        scale: Its standard deviations.
        prior_mean: Means of the prior.
        prior_scale: Its standard deviations.

    >>> gaussian_kl([1.0, 0.0], 0.5, 0.0, 0.5)
    2.0
    """
    center, spread, prior_center, prior_spread = _together(mean, scale, prior_mean, prior_scale)
    _positive("scale", spread)
    _positive("prior_scale", prior_spread)
    ratio, shift = spread / prior_spread, (center - prior_center) / prior_spread
    return float((-ratio.log() + (ratio.square() + shift.square() - 1) / 2).sum())


def uniform_kl(center: Any, scale: Any, limit: Any) -> float:
    """Compute the KL of U(center - scale, center + scale) from U(-limit, limit).

    It is the sum of ln(limit / scale).

    Args:
        center: Centers of the posterior, one per weight or one for all.
        scale: Its half widths.
        limit: Half widths of the prior, which must contain the posterior.

    >>> round(uniform_kl([0.5, -1.0], 0.5, 2.0), 6) == round(2 * math.log(4), 6)
    True
    """
    middle, spread, outer = _together(center, scale, limit)
    _positive("scale", spread)
    if bool((middle.abs() + spread > outer * (1 + 1e-12)).any()):
        worst = int((middle.abs() + spread - outer).argmax())
        raise InputError(
            "limit must contain the noise, |center| + scale <= limit, got "
            f"{float(middle[worst].abs()):.6g} + {float(spread[worst]):.6g} > "
            f"{float(outer[worst]):.6g} at weight {worst}. Raise limit or lower scale."
        )
    return float((outer / spread).log().sum())


def truncated_kl_limit(kl: float) -> float:
    """Bound the KL of a Gaussian truncated to an event of probability ½ or more, by (12).

    Args:
        kl: KL of the whole Gaussian.

    >>> truncated_kl_limit(3.0)
    8.0
    """
    return 2 * (kl + 1)


def truncated_gaussian_kl(mean: Any, scale: Any, radius: Any, prior_variance: float) -> float:
    """Compute the exact KL of a truncated Gaussian around ``mean`` from N(0, prior_variance).

    Args:
        mean: Means, one per weight or one for all.
        scale: Standard deviations before the truncation.
        radius: The noise is truncated to absolute values below it.
        prior_variance: Variance of the prior.

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
    """Compute what a standard Gaussian keeps when truncated to [-reach, reach].

    Returns:
        Its mass inside, and the variance of the truncated Gaussian.

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
            f"{sorted(lengths)} entries. Give all of them for the same weights."
        )
    return tuple(torch.broadcast_tensors(*tensors))


def _positive(name: str, values: Tensor) -> None:
    if not bool(((values > 0) & torch.isfinite(values)).all()):
        raise InputError(
            f"{name} must be finite numbers above 0, got {float(values.min()):.6g}. Correct it."
        )
