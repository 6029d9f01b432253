"""The grouped jackknife: the standard error of any statistic of samples, in a few evaluations."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mindgap.core.checks import generator

GROUPS = 20


def grouped_jackknife(statistic: Callable[[Tensor], float], count: int, seed: int = 0) -> float:
    r"""Estimate the standard error of a statistic by leaving out one group of samples at a time.

    The error is $\sqrt{\frac{g-1}{g} \sum_k (\theta_{(k)} - \bar\theta)^2}$ for g groups.

    Args:
        statistic: Computes the number from the places of the samples that are kept.
        count: Number of samples.
        seed: Seed of the division into groups, 20 or as many as there are samples.

    >>> values = torch.arange(100.0)
    >>> error = grouped_jackknife(lambda kept: float(values[kept].mean()), 100)
    >>> 1.5 < error < 5  # the standard deviation over ten is 2.9
    True
    """
    own = jackknife_groups(count, seed)
    groups = int(own.max()) + 1 if count else 0
    return jackknife_error(
        [statistic((own != group).nonzero()[:, 0]) for group in range(groups)] if groups > 1 else []
    )


def jackknife_groups(count: int, seed: int = 0) -> Tensor:
    """Return the group of every sample: 20 groups, or as many as there are samples.

    Args:
        count: Number of samples.
        seed: Seed of the division.

    >>> jackknife_groups(60).bincount().tolist() == [3] * 20
    True
    """
    own = torch.empty(count, dtype=torch.long)
    order = torch.randperm(count, generator=generator(seed))
    own[order] = torch.arange(count) % min(GROUPS, max(count, 1))
    return own


def jackknife_error(found: Sequence[float]) -> float:
    """Return the standard error, from the values that the statistic has without each group.

    >>> jackknife_error([1.0, 3.0])
    1.0
    """
    groups = len(found)
    if groups < 2:
        return math.inf
    values = torch.tensor(found, dtype=torch.float64)
    return math.sqrt((groups - 1) / groups * float((values - values.mean()).square().sum()))
