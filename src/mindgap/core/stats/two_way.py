"""The two-way test: a mean difference over random seeds and random samples at once."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mindgap.core.errors import InputError
from mindgap.core.result import Interval
from mindgap.core.special import student_quantile, student_tail

POWER = 0.8  # with which a minimum detectable difference is found


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoWay:
    """A mean difference that is to hold for other seeds and other samples.

    Attributes:
        difference: Mean over all seeds and samples.
        standard_error: Its standard error.
        interval: Its two-sided interval.
        p_value: One-sided p-value of a mean above zero; one if nothing varies.
        freedom: Satterthwaite's degrees of freedom.
        seed_part: Variance between seeds that all samples share.
        sample_part: Variance between samples that all seeds share; no number of seeds averages it
            away.
        residual: Variance that belongs to one seed and one sample.
        seeds: Number of seeds.
        samples: Number of samples.

    >>> found = two_way([[0.1, 0.3, 0.2], [0.2, 0.4, 0.2]])
    >>> isinstance(found, TwoWay), round(found.difference, 3), (found.seeds, found.samples)
    (True, 0.233, (2, 3))
    """

    difference: float
    standard_error: float
    interval: Interval
    p_value: float
    freedom: float
    seed_part: float
    sample_part: float
    residual: float
    seeds: int
    samples: int

    @property
    def constant(self) -> bool:
        """Whether all differences are equal, so that nothing can be tested."""
        return self.standard_error == 0

    @property
    def harm(self) -> float:
        """The one-sided p-value of a mean below zero."""
        return 1.0 if self.constant else 1 - self.p_value


def two_way(differences: ArrayLike, level: float = 0.95) -> TwoWay:
    r"""Test the mean of a table of seeds × samples against zero.

    Both the seeds and the samples are draws from a population. With the mean squares of seeds
    $M_s$, samples $M_i$ and residuals $M_c$ of a table of S seeds and n samples, the variance of
    the mean is $\max(M_s + M_i - M_c, M_s, M_i) / (Sn)$. A test over seeds alone would take the
    error of the n samples for a fact: it finds differences that no other sample shows.

    Args:
        differences: One row per seed, one column per sample, such as the loss of a control minus
            the loss of an arm.
        level: Confidence level of the interval.

    Returns:
        The mean, its interval and its one-sided p-value. If all differences are equal, the interval
        is a point and the p-value is one: identical predictions prove nothing.

    >>> found = two_way([[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    >>> round(found.difference, 3), round(found.p_value, 3)
    (0.5, 0.133)
    >>> two_way([[1.0, 1.0], [1.0, 1.0]]).p_value
    1.0
    """
    table = _checked(differences)
    seeds, samples = table.shape
    mean = float(table.mean())
    by_seed, by_sample, rest = _mean_squares(table)
    freedom, variance = _freedom(by_seed, by_sample, rest, seeds, samples)
    error = math.sqrt(variance)
    half = student_quantile(level, freedom) * error if error else 0.0
    return TwoWay(
        difference=mean,
        standard_error=error,
        interval=Interval(low=mean - half, high=mean + half, level=level),
        p_value=_one_sided(mean / error, freedom) if error else 1.0,
        freedom=freedom,
        seed_part=max(0.0, (by_seed - rest) / samples),
        sample_part=max(0.0, (by_sample - rest) / seeds),
        residual=rest,
        seeds=seeds,
        samples=samples,
    )


def stratified(parts: Sequence[TwoWay]) -> TwoWay:
    r"""Join the tests of disjoint samples, each with its own seeds, into one of their mean.

    The parts are independent: with shares $w_k = n_k / n$ of the samples, the mean is
    $\sum_k w_k \bar d_k$ and its variance $\sum_k w_k^2 V_k$, with Satterthwaite's degrees of freedom.

    Args:
        parts: What :func:`two_way` gave for each part, at one level.

    >>> parts = [two_way([[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), two_way([[0.0, 1.0], [0.0, 0.0]])]
    >>> found = stratified(parts)
    >>> round(found.difference, 3), found.samples, found.seeds
    (0.4, 5, 2)
    """
    if not parts:
        raise InputError("A stratified test must have at least one part, got none. Pass some.")
    samples, seeds = sum(part.samples for part in parts), min(part.seeds for part in parts)
    level, weighed = parts[0].interval.level, [(part.samples / samples, part) for part in parts]
    mean = math.fsum(w * part.difference for w, part in weighed)
    variances = [(w * part.standard_error) ** 2 for w, part in weighed]
    error = math.sqrt(math.fsum(variances))
    spread = math.fsum(v * v / part.freedom for v, part in zip(variances, parts, strict=True))
    freedom = error**4 / spread if spread else 1.0
    half = student_quantile(level, freedom) * error if error else 0.0
    return TwoWay(
        difference=mean,
        standard_error=error,
        interval=Interval(low=mean - half, high=mean + half, level=level),
        p_value=_one_sided(mean / error, freedom) if error else 1.0,
        freedom=freedom,
        # As of one table with all samples and the fewest seeds: the variance of its mean is this
        # one, and what more seeds or samples would give follows.
        seed_part=seeds * math.fsum(w * w * part.seed_part / part.seeds for w, part in weighed),
        sample_part=math.fsum(w * part.sample_part for w, part in weighed),
        residual=seeds * math.fsum(w * part.residual / part.seeds for w, part in weighed),
        seeds=seeds,
        samples=samples,
    )


def minimum_detectable(
    found: TwoWay,
    *,
    seeds: float | None = None,
    samples: float | None = None,
    power: float = POWER,
) -> float:
    r"""Compute the difference that the two-way test would find with this power.

    It is $(t_{.975} + t_{power}) \sqrt{\sigma_a^2/S + \sigma_b^2/n + \sigma_c^2/(Sn)}$ with the
    parts of seeds, samples and residuals. With endless seeds it tells what the samples allow.

    Args:
        found: What :func:`two_way` gave.
        seeds: Another number of seeds, or ``math.inf``.
        samples: Another number of samples, or ``math.inf``.
        power: Probability with which such a difference would be found.

    >>> found = two_way([[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    >>> minimum_detectable(found) > minimum_detectable(found, seeds=math.inf) > 0
    True
    """
    wide = float(found.seeds if seeds is None else seeds)
    long = float(found.samples if samples is None else samples)
    parts = (
        found.seed_part / wide,
        found.sample_part / long,
        found.residual / (wide * long),
    )
    variance = sum(parts)
    if not variance:
        return 0.0
    # The shares of the mean squares in the variance, each with its own degrees of freedom.
    freedom = variance**2 / (
        (parts[0] + parts[2]) ** 2 / (wide - 1)
        + (parts[1] + parts[2]) ** 2 / (long - 1)
        + parts[2] ** 2 / ((wide - 1) * (long - 1))
    )
    freedom = min(max(freedom, 1.0), 1e9)
    quantiles = student_quantile(found.interval.level, freedom) + student_quantile(
        2 * power - 1, freedom
    )
    return quantiles * math.sqrt(variance)


def _checked(differences: ArrayLike) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    table = np.asarray(differences, dtype=float)
    if table.ndim != 2 or min(table.shape) < 2:
        raise InputError(
            "A two-way test must have a table of at least two seeds and two samples, got the shape "
            f"{table.shape}. Train more seeds, or pass more samples."
        )
    if not np.isfinite(table).all():
        raise InputError(
            "A two-way test must have finite differences, got NaN or infinite ones. Leave the "
            "diverged arm out."
        )
    return table


def _mean_squares(
    table: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> tuple[float, float, float]:
    seeds, samples = table.shape
    rows, columns = table.mean(1), table.mean(0)
    if np.ptp(table) == 0:  # a mean of equal numbers may differ from them by its rounding
        return 0.0, 0.0, 0.0
    left = table - rows[:, None] - columns + table.mean()
    rest = float((left**2).sum()) / ((seeds - 1) * (samples - 1))
    return samples * float(rows.var(ddof=1)), seeds * float(columns.var(ddof=1)), rest


def _freedom(
    by_seed: float, by_sample: float, rest: float, seeds: int, samples: int
) -> tuple[float, float]:
    """Satterthwaite's degrees of freedom, and the variance of the mean."""
    total = max(by_seed + by_sample - rest, by_seed, by_sample)
    if total <= 0:
        return 1.0, 0.0
    spread = (
        by_seed**2 / (seeds - 1)
        + by_sample**2 / (samples - 1)
        + rest**2 / ((seeds - 1) * (samples - 1))
    )
    return max(total**2 / spread, 1.0), total / (seeds * samples)


def _one_sided(statistic: float, freedom: float) -> float:
    tail = student_tail(statistic, freedom) / 2
    return tail if statistic > 0 else 1 - tail
