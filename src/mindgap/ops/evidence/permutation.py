"""Permutation tests: sums over a group of samples chosen at random, and over random signs."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import normal_tail

SYMMETRIC = 1e-3  # skewness below which a sum is taken as normal
# At a skewness of -0.3 200,000 permutations of digits exceed the mirrored law as often as it says or
# less, down to 1e-5; at -1.5 it gave 0.28 for an exact 0.73.
SKEWED = 0.3
TINY = 1e-300  # no p-value is zero


@dataclasses.dataclass(frozen=True)
class _Excess:
    """Sums of scores over some of the samples, against all ways to choose these at random.

    Args:
        difference: The sum minus its mean, one number per column of scores.
        variance: Its variance.
        skewness: Its skewness.
    """

    difference: Tensor
    variance: Tensor
    skewness: Tensor

    def p_values(self) -> list[float]:
        """The chance of sums at least that large, by a chi-square law with equal three moments."""
        return [
            _tail(*row)
            for row in zip(
                self.difference.tolist(),
                self.variance.tolist(),
                self.skewness.tolist(),
                strict=True,
            )
        ]


def _tail(difference: float, variance: float, skewness: float) -> float:
    if variance <= 0:
        return 1.0
    statistic = difference / math.sqrt(variance)
    half = 4 / max(skewness**2, 1e-12)
    at = half + math.copysign(math.sqrt(half), skewness) * statistic
    # A sum that is skewed to the left has a light right tail, for which the normal one is safe. The
    # mirrored chi-square law is sharper, but ends too early if the skewness is large.
    if abs(skewness) < SYMMETRIC or (skewness < 0 and (skewness < -SKEWED or at < half / 2)):
        return normal_tail(statistic)
    tail = torch.special.gammaincc if skewness > 0 else torch.special.gammainc
    found = tail(torch.tensor(half).double(), torch.tensor(max(at, 0.0)).double())
    return max(float(found), TINY)


def excess(scores: Tensor, chosen: Tensor, strata: Tensor) -> _Excess:
    """Compare the sum of scores over the chosen samples with that of random ones per stratum.

    Args:
        scores: One row per sample, one column per test.
        chosen: Whether each sample is chosen.
        strata: The stratum of each sample. As many as are chosen in it could be any of it.

    >>> found = excess(
    ...     torch.tensor([[1.0], [0.0]]), torch.tensor([True, False]), torch.zeros(2).long()
    ... )
    >>> float(found.difference), float(found.variance)
    (0.5, 0.25)
    """
    _, strata = strata.unique(return_inverse=True)
    count = int(strata.max()) + 1
    total = strata.bincount(minlength=count).double()
    drawn = strata[chosen].bincount(minlength=count).double()

    def summed(values: Tensor, where: Tensor) -> Tensor:
        empty = torch.zeros(count, values.shape[1], dtype=values.dtype)
        return empty.index_add(0, where, values)

    scores = scores.double()
    mean = summed(scores, strata) / total[:, None]
    apart = scores - mean[strata]
    second = drawn * (total - drawn) / (total * (total - 1).clamp_min(1))
    third = second * (total - 2 * drawn) / (total - 2).clamp_min(1)
    third = torch.where(total > 2, third, torch.zeros_like(third))
    variance = second @ summed(apart.square(), strata)
    # Scores that are equal up to rounding have a variance of rounding errors.
    variance = torch.where(variance > 1e-12 * scores.square().sum(0), variance, 0.0)
    cubes = third @ summed(apart**3, strata)
    difference = summed(apart[chosen], strata[chosen]).sum(0)
    return _Excess(difference, variance, cubes / variance.clamp_min(1e-300) ** 1.5)


def least_p_values(marked: Tensor, chosen: Tensor, strata: Tensor) -> Tensor:
    """Compute the p-value of the most extreme choice: every marked sample is chosen.

    Where more samples of a stratum are marked than chosen, 0 is returned.

    Args:
        marked: One row per sample, one column per test: whether its score is above zero.
        chosen: Whether each sample is chosen.
        strata: The stratum of each sample.

    >>> least_p_values(torch.ones(4, 1), torch.tensor([1, 1, 0, 0]) > 0, torch.zeros(4).long())
    tensor([0.], dtype=torch.float64)
    >>> marked = torch.tensor([[1.0], [1.0], [0.0], [0.0]])
    >>> least = least_p_values(marked, torch.tensor([1, 1, 0, 0]) > 0, torch.zeros(4).long())
    >>> [round(p, 9) for p in least.tolist()]  # one of six ways to choose two of four
    [0.166666667]
    """
    _, strata = strata.unique(return_inverse=True)
    total = strata.bincount().double()[:, None]
    drawn = strata[chosen].bincount(minlength=len(total)).double()[:, None]
    hits = torch.zeros(len(total), marked.shape[1], dtype=torch.float64)
    hits.index_add_(0, strata, marked.double())

    def ways(many: Tensor, few: Tensor) -> Tensor:
        return torch.lgamma(many + 1) - torch.lgamma(few + 1) - torch.lgamma(many - few + 1)

    rest = (drawn - hits).clamp_min(0)
    logs = ways(total - hits.minimum(drawn), rest) - ways(total, drawn)
    return logs.masked_fill(hits > drawn, -math.inf).sum(0).exp()


def tarone(p_values: Tensor, least: Tensor, level: float) -> Tensor:
    """Correct p-values for the number of tests that could reject (Tarone's correction).

    Args:
        p_values: One per test.
        least: The least p-value that each test can have.
        level: The level of the tests. Corrected p-values above it are those of Bonferroni.

    >>> least = torch.tensor([0.0, 0.5, 0.5])
    >>> [round(p, 6) for p in tarone(torch.tensor([0.001, 0.5, 0.6]), least, 0.01).tolist()]
    [0.001, 1.0, 1.0]
    """
    tests = torch.arange(1, len(least) + 1)
    able = torch.searchsorted(least.sort().values, level / tests.to(least), right=True)
    count = int(tests[able <= tests][0])
    values = torch.maximum(p_values, least)  # a law fitted to moments may say less
    few = values * count
    return torch.where(few <= level, few, (values * len(values)).clamp_max(1.0))


def sign_flip_tail(differences: Tensor) -> float:
    r"""Bound the p-value of the sign-flip test of a positive mean, however heavy the tails are.

    If neither variant is better, a difference is as likely negative as positive. Given the sizes,
    Hoeffding's inequality then bounds the tail of the sum by $\exp(-S^2 / 2 \sum_i d_i^2)$. A
    normal tail would be too small where a few samples carry the sum.

    Args:
        differences: One number per sample.

    >>> round(sign_flip_tail(torch.ones(8)), 4), sign_flip_tail(torch.tensor([1.0, -2.0]))
    (0.0183, 1.0)
    """
    values = differences.detach().double()
    total, squares = float(values.sum()), float(values.square().sum())
    return math.exp(-total * total / (2 * squares)) if total > 0 else 1.0
