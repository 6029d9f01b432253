"""Error rates: exact intervals, and inverses of binomial tails and of divergences."""

import math

from mindgap.core.result import Interval
from mindgap.core.special import bisect, log_upper_beta


def binomial_tail_inverse(errors: int, samples: int, delta: float) -> float:
    """Compute the exact (Clopper–Pearson) upper confidence limit of an error rate.

    It is the largest rate under which at most ``errors`` errors still have probability ``delta``.

    Args:
        errors: Number of errors observed.
        samples: Number of independent samples.
        delta: Probability with which the limit may fail.

    >>> round(binomial_tail_inverse(0, 100, 0.05), 6)
    0.029513
    """
    if errors >= samples or delta <= 0:
        return 1.0
    # In logarithms: 1 - delta would be one for a delta below 1e-16, as many hypotheses make it.
    budget = math.log(delta)
    return bisect(
        lambda rate: budget - log_upper_beta(errors + 1, samples - errors, rate), 0.0, 1.0
    )


def proportion_interval(errors: int, samples: int, level: float = 0.95) -> Interval:
    """Compute the Clopper–Pearson interval of a proportion.

    Args:
        errors: Number of errors observed.
        samples: Number of independent samples.
        level: Confidence level.

    >>> found = proportion_interval(5, 100)
    >>> round(found.low, 4), round(found.high, 4)
    (0.0164, 0.1128)
    """
    tail = (1 - level) / 2
    low = 1 - binomial_tail_inverse(samples - errors, samples, tail)
    return Interval(low=low, high=binomial_tail_inverse(errors, samples, tail), level=level)


def binary_kl(first: float, second: float) -> float:
    """Compute kl(first‖second) of two Bernoulli distributions, in nats.

    >>> round(binary_kl(0.0, 0.5), 6)
    0.693147
    """
    total = 0.0
    for q, p in ((first, second), (1 - first, 1 - second)):
        if q > 0:
            total += q * math.log(q / p) if p > 0 else math.inf
    return max(total, 0.0)


def kl_inverse(empirical: float, budget: float) -> float:
    """Compute the largest p with kl(empirical‖p) ≤ budget, the upper end of a kl ball.

    Args:
        empirical: Observed rate, from 0 to 1.
        budget: Radius of the ball, in nats.

    >>> round(kl_inverse(0.0, 0.1), 9) == round(1 - math.exp(-0.1), 9)
    True
    """
    return min(1.0, bisect(lambda rate: binary_kl(empirical, rate) - budget, empirical, 1.0))
