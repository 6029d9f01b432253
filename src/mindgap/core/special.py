"""Special functions, exact in logarithms where bounds need it; SciPy is their reference in tests."""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor


def bisect(function: Callable[[float], float], low: float, high: float) -> float:
    """Find where a non-decreasing function crosses zero, to the last bit.

    Args:
        function: Non-decreasing between ``low`` and ``high``.
        low: Left end, where the function is negative.
        high: Right end. The result is never below the crossing, so an upper limit stays one.

    >>> round(bisect(lambda x: x * x - 2, 0.0, 2.0), 12)
    1.414213562373
    """
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if function(middle) >= 0 else (middle, high)
    return high


def regularized_beta(a: float, b: float, x: float) -> float:
    """Compute the regularized incomplete beta function I_x(a, b) by Lentz's continued fraction.

    >>> round(regularized_beta(2.0, 3.0, 0.4), 12)
    0.5248
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if _beyond_mean(a, b, x):
        return 1 - regularized_beta(b, a, 1 - x)
    return math.exp(_log_front(a, b, x)) * _fraction(a, b, x) / a


def log_upper_beta(a: float, b: float, x: float) -> float:
    """Compute ln(1 - I_x(a, b)), which stays exact where 1 - I_x(a, b) is far below 1e-16.

    >>> round(log_upper_beta(1.0, 100.0, 0.9) / math.log(0.1), 9)
    100.0
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else -math.inf
    if _beyond_mean(a, b, x):
        return _log_front(a, b, x) + math.log(_fraction(b, a, 1 - x) / b)
    return math.log1p(-regularized_beta(a, b, x))


def _beyond_mean(a: float, b: float, x: float) -> bool:
    """Tell where the continued fraction of I_x(a, b) converges slowly, and that of the rest fast."""
    return x > (a + 1) / (a + b + 2)


def _log_front(a: float, b: float, x: float) -> float:
    gammas = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return gammas + a * math.log(x) + b * math.log1p(-x)


def _fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away(1.0 + term * d, tiny)
            c = _away(1.0 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def _away(value: float, tiny: float) -> float:
    """Keep Lentz's ratios away from zero, which they divide by."""
    return value if abs(value) > tiny else tiny


def student_tail(statistic: float, degrees: float) -> float:
    """Compute the two-sided p-value of a Student statistic.

    >>> round(student_tail(2.0, 10), 6)
    0.073388
    """
    if math.isinf(statistic):
        return 0.0
    return regularized_beta(degrees / 2, 0.5, degrees / (degrees + statistic * statistic))


@functools.lru_cache(maxsize=1024)  # a table asks for the same one a hundred times
def student_quantile(level: float, degrees: float) -> float:
    """Compute the half-width, in standard errors, of a two-sided interval of this level.

    >>> round(student_quantile(0.95, 10), 6)
    2.228139
    """
    return bisect(lambda t: (1 - student_tail(t, degrees)) - level, 0.0, 1e8)


def normal_tail(statistic: float) -> float:
    """Compute the probability that a standard normal number exceeds the statistic.

    >>> round(normal_tail(1.959964), 6)
    0.025
    """
    return 0.5 * math.erfc(statistic / math.sqrt(2))


def chi_square_tail(statistic: float, degrees: float) -> float:
    """Compute the probability that a chi-square number exceeds the statistic.

    >>> round(chi_square_tail(11.0705, 5), 5)
    0.05
    """
    half, at = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half, at)) if statistic > 0 else 1.0


def hypergeometric_tail(hits: int, drawn: int, marked: int, total: int) -> float:
    """Compute the probability of at least so many marked items among those drawn.

    Args:
        hits: Number of marked items among those drawn.
        drawn: Number of items drawn, without replacement.
        marked: Number of marked items in all.
        total: Number of items in all.

    >>> round(hypergeometric_tail(2, 2, 5, 10), 6)
    0.222222
    """
    most = min(drawn, marked)
    if hits <= max(0, drawn + marked - total):
        return 1.0
    if hits > most:
        return 0.0
    counts = torch.arange(hits, most + 1, dtype=torch.float64)
    logs = _log_choose(marked, counts) + _log_choose(total - marked, drawn - counts)
    whole = _log_choose(total, torch.tensor(float(drawn), dtype=torch.float64))
    return min(1.0, float(torch.logsumexp(logs - whole, 0).exp()))


def _log_choose(total: float, part: Tensor) -> Tensor:
    return math.lgamma(total + 1) - torch.lgamma(part + 1) - torch.lgamma(total - part + 1)


def binomial_upper_tail(hits: int, trials: int, rate: float) -> float:
    """Compute the probability of at least so many hits in independent trials.

    >>> round(binomial_upper_tail(2, 3, 0.5), 6)
    0.5
    """
    if hits <= 0:
        return 1.0
    return 0.0 if hits > trials else regularized_beta(hits, trials - hits + 1, rate)
