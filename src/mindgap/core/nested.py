"""Paired tests of two arms that share data splits and, within each split, seeds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from mindgap.core.errors import InputError
from mindgap.core.result import Interval
from mindgap.core.special import student_quantile, student_tail
from mindgap.core.stats import Paired, paired


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nested:
    """The same mean difference, tested twice.

    ``over_splits`` asks whether it would hold on other data: the seeds of a split are averaged, and the splits are the
    pairs. ``interval`` and ``p_value`` ask whether other seeds would change it on these very splits: only what varies
    within a split counts as noise. The first is the one to quote; the second alone says nothing about new data.
    """

    over_splits: Paired
    difference: float
    interval: Interval
    p_value: float
    freedom: int


def paired_nested(treated: ArrayLike, control: ArrayLike, *, level: float = 0.95) -> Nested:
    """Compare two arms given as tables of splits × seeds.

    >>> found = paired_nested([[2.0, 2.2], [1.0, 1.2]], [[1.0, 1.0], [1.0, 1.0]])
    >>> round(found.difference, 12), found.freedom
    (0.6, 2)
    >>> found.p_value < found.over_splits.p_value
    True
    """
    first, second = np.asarray(treated, dtype=float), np.asarray(control, dtype=float)
    if first.shape != second.shape or first.ndim != 2 or min(first.shape) < 2:
        raise InputError(
            f"A nested test must have two equal tables of at least two splits and two seeds, got {first.shape} and "
            f"{second.shape}. Run both arms with the same splits and seeds."
        )
    change = first - second
    splits, seeds = change.shape
    freedom = splits * (seeds - 1)
    spread = float(((change - change.mean(1, keepdims=True)) ** 2).sum()) / freedom
    mean, error = float(change.mean()), math.sqrt(spread / change.size)
    statistic = 0.0 if mean == 0 else (mean / error if error > 0 else math.copysign(math.inf, mean))
    half = student_quantile(level, freedom) * error
    return Nested(
        over_splits=paired(first.mean(1), second.mean(1), level=level),
        difference=mean,
        interval=Interval(low=mean - half, high=mean + half, level=level),
        p_value=student_tail(statistic, freedom),
        freedom=freedom,
    )
