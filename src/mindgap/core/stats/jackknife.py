"""The grouped jackknife: the standard error of any statistic of samples, in a few evaluations."""

import math
from collections.abc import Callable

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
    groups = min(GROUPS, count)
    if groups < 2:
        return math.inf
    order = torch.randperm(count, generator=generator(seed))
    own = torch.empty(count, dtype=torch.long)
    own[order] = torch.arange(count) % groups
    found = [statistic((own != group).nonzero()[:, 0]) for group in range(groups)]
    values = torch.tensor(found, dtype=torch.float64)
    return math.sqrt((groups - 1) / groups * float((values - values.mean()).square().sum()))
