"""Intervals, paired tests, Holm's correction, rank correlations, binomial and kl inverses."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mindgap.core.errors import InputError
from mindgap.core.result import Interval
from mindgap.core.special import student_quantile, student_tail


def mean_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Compute Student's confidence interval of a mean.

    Args:
        values: Independent numbers; a single one gives an unbounded interval.
        level: Confidence level.

    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> round(found.low, 3), round(found.high, 3)
    (-0.484, 4.484)
    """
    data = np.asarray(values, dtype=float)
    if len(data) < 2:
        return Interval(low=-math.inf, high=math.inf, level=level)
    half = student_quantile(level, len(data) - 1) * standard_error(data)
    return Interval(low=float(data.mean()) - half, high=float(data.mean()) + half, level=level)


def standard_error(values: ArrayLike, *, overlap: float = 0.0) -> float:
    r"""Compute the standard error of a mean; infinite for a single value.

    Random splits of the same data share samples, so their results are not independent and the
    usual error is too small. The correction of Nadeau and Bengio is
    $\sqrt{(1/J + n_{test} / n_{train}) \, s^2}$ for J splits.

    Args:
        values: Numbers, one per draw or split.
        overlap: Test samples per training sample of a split, where all splits draw from the same
            data; 0 for independent numbers.

    >>> round(standard_error([1.0, 2.0, 3.0]), 6)
    0.57735
    >>> round(standard_error([1.0, 2.0, 3.0], overlap=0.25), 6)
    0.763763
    """
    data = np.asarray(values, dtype=float)
    if len(data) < 2:
        return math.inf
    return float(data.std(ddof=1) * math.sqrt(1 / len(data) + overlap))


def bootstrap(values: ArrayLike, level: float = 0.95, draws: int = 2000, seed: int = 0) -> Interval:
    """Compute a percentile bootstrap interval of a mean.

    Args:
        values: Independent numbers.
        level: Confidence level.
        draws: Number of resamples.
        seed: Seed of the resampling.

    >>> found = bootstrap([1.0, 2.0, 3.0, 4.0])
    >>> 1 < found.low < 2.5 < found.high < 4
    True
    """
    data = np.asarray(values, dtype=float)
    picks = np.random.default_rng(seed).integers(len(data), size=(draws, len(data)))
    low, high = np.quantile(data[picks].mean(1), [(1 - level) / 2, (1 + level) / 2])
    return Interval(low=float(low), high=float(high), level=level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paired:
    """A paired comparison of two arms.

    Attributes:
        difference: Mean of treated minus control.
        interval: Student's interval of the difference.
        p_value: Two-sided p-value of Student's test.
        permutation_p_value: Two-sided p-value of the sign-flip test, which assumes no normality but
            independent pairs; NaN where splits overlap.
        pairs: Number of pairs.

    >>> found = paired([0.10, 0.12, 0.11], [0.15, 0.16, 0.17])
    >>> isinstance(found, Paired), round(found.difference, 3), found.pairs
    (True, -0.05, 3)
    """

    difference: float
    interval: Interval
    p_value: float
    permutation_p_value: float
    pairs: int


def paired(
    treated: ArrayLike,
    control: ArrayLike,
    *,
    level: float = 0.95,
    overlap: float = 0.0,
    seed: int = 0,
) -> Paired:
    """Compare two arms that share their seeds or splits.

    Args:
        treated: One number per seed or split.
        control: The numbers of the other arm, pair by pair in the same order.
        level: Confidence level of the interval.
        overlap: Test samples per training sample, where the pairs are random splits of the same
            data. The test is then the corrected resampled t-test of Nadeau and Bengio (see
            :func:`standard_error`). 0 for independent pairs.
        seed: Seed of the sign flips (used beyond 14 pairs, where not all can be enumerated).

    >>> found = paired([0.9, 0.8, 0.85], [0.7, 0.65, 0.6])
    >>> round(found.difference, 6), found.pairs, found.permutation_p_value
    (0.2, 3, 0.25)
    >>> found.p_value < paired([0.9, 0.8, 0.85], [0.7, 0.65, 0.6], overlap=0.25).p_value
    True
    """
    first, second = np.asarray(treated, dtype=float), np.asarray(control, dtype=float)
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise InputError(
            "A paired test must have two equally long lists of at least two numbers, got "
            f"{first.shape} and {second.shape}. Run both arms with the same seeds."
        )
    difference = first - second
    error = standard_error(difference, overlap=overlap)
    mean = float(difference.mean())
    statistic = 0.0 if mean == 0 else (mean / error if error > 0 else math.copysign(math.inf, mean))
    half = student_quantile(level, len(difference) - 1) * error
    return Paired(
        difference=mean,
        interval=Interval(low=mean - half, high=mean + half, level=level),
        p_value=student_tail(statistic, len(difference) - 1),
        permutation_p_value=math.nan if overlap else _sign_flip(difference, seed=seed),
        pairs=len(difference),
    )


def _sign_flip(difference: ArrayLike, draws: int = 20_000, seed: int = 0) -> float:
    """Compute the two-sided p-value of a zero mean under random sign flips.

    Args:
        difference: Differences of pairs.
        draws: Number of random sign vectors; up to 14 pairs all 2**pairs are enumerated instead.
        seed: Seed of the random signs.

    >>> _sign_flip([1.0, 2.0, 3.0])
    0.25
    """
    data = np.asarray(difference, dtype=float)
    if len(data) <= 14:
        signs = 1 - 2.0 * ((np.arange(2 ** len(data))[:, None] >> np.arange(len(data))) & 1)
        return float((np.abs(signs @ data) >= abs(data.sum()) * (1 - 1e-12)).mean())
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(draws, len(data)))
    hits = int((np.abs(signs @ data) >= abs(data.sum()) * (1 - 1e-12)).sum())
    # The observed signs count as one of the draws: without it the p-value could be zero, and the
    # test would reject too often.
    return (hits + 1) / (draws + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nested:
    """A mean difference, tested both across splits and across seeds.

    Attributes:
        over_splits: The test to quote. It asks whether the difference would hold on other data: the
            seeds of a split are averaged, and the splits are the pairs.
        difference: Mean of treated minus control.
        interval: Interval for other seeds on these very splits. Only the variation within a split
            counts as noise, so alone it says nothing about new data.
        p_value: The p-value that belongs to ``interval``.
        freedom: Degrees of freedom of ``interval``.

    >>> found = paired_nested([[1.0, 1.2], [2.0, 2.1]], [[0.5, 0.6], [1.4, 1.6]])
    >>> isinstance(found, Nested), round(found.difference, 3)
    (True, 0.55)
    """

    over_splits: Paired
    difference: float
    interval: Interval
    p_value: float
    freedom: int


def paired_nested(
    treated: ArrayLike, control: ArrayLike, *, level: float = 0.95, overlap: float = 0.0
) -> Nested:
    """Compare two arms given as tables of splits × seeds.

    Args:
        treated: One row per data split, one column per seed.
        control: The table of the other arm, with the same splits and seeds.
        level: Confidence level of both intervals.
        overlap: Test samples per training sample, where the splits draw from the same data; 0 for
            independent draws.

    >>> found = paired_nested([[2.0, 2.2], [1.0, 1.2]], [[1.0, 1.0], [1.0, 1.0]])
    >>> round(found.difference, 12), found.freedom
    (0.6, 2)
    >>> found.p_value < found.over_splits.p_value
    True
    """
    first, second = np.asarray(treated, dtype=float), np.asarray(control, dtype=float)
    if first.shape != second.shape or first.ndim != 2 or min(first.shape) < 2:
        raise InputError(
            "A nested test must have two tables of equal shape with at least two splits and two "
            f"seeds, got {first.shape} and {second.shape}. Run both arms with the same splits and "
            "seeds."
        )
    change = first - second
    splits, seeds = change.shape
    freedom = splits * (seeds - 1)
    spread = float(((change - change.mean(1, keepdims=True)) ** 2).sum()) / freedom
    mean, error = float(change.mean()), math.sqrt(spread / change.size)
    statistic = 0.0 if mean == 0 else (mean / error if error > 0 else math.copysign(math.inf, mean))
    half = student_quantile(level, freedom) * error
    return Nested(
        over_splits=paired(first.mean(1), second.mean(1), level=level, overlap=overlap),
        difference=mean,
        interval=Interval(low=mean - half, high=mean + half, level=level),
        p_value=student_tail(statistic, freedom),
        freedom=freedom,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of several tests by Holm's step-down method.

    Args:
        p_values: Raw p-values; the corrected ones come in the same order.

    >>> [round(p, 12) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    raised = np.maximum.accumulate(np.minimum(1.0, np.asarray(p_values)[order] * factors))
    corrected = np.empty(len(p_values))
    corrected[order] = raised
    return [float(value) for value in corrected]


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Compute Kendall's tau-b, a rank correlation that corrects for ties.

    Args:
        first: One number per item.
        second: The other numbers of the same items.

    Returns:
        The correlation, or NaN if one side is constant.

    >>> round(kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]), 6)
    0.666667
    """
    x, y = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    upper = np.triu_indices(len(x), 1)
    a, b = np.sign(x[:, None] - x)[upper], np.sign(y[:, None] - y)[upper]
    scale = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return float((a * b).sum()) / scale if scale else math.nan


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Compute Spearman's rank correlation, with mean ranks for ties.

    Args:
        first: One number per item.
        second: The other numbers of the same items.

    Returns:
        The correlation, or NaN if one side is constant.

    >>> spearman([1, 2, 3, 4], [1, 3, 2, 4])
    0.8
    """
    ranks = [_mean_ranks(np.asarray(values, dtype=float)) for values in (first, second)]
    centered = [rank - rank.mean() for rank in ranks]
    scale = math.sqrt(float((centered[0] ** 2).sum()) * float((centered[1] ** 2).sum()))
    return float((centered[0] * centered[1]).sum()) / scale if scale else math.nan


def _mean_ranks(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]
