"""Two-sample tests: ranks, cross-fitted scores with an exact tail, Kolmogorov and Smirnov.

A few foreign samples hardly move the mean of a score, but they fill the top of it. The number of
samples of the second group there has an exact distribution if both come from one source.
"""

import math

import torch
from torch import Tensor

from mindgap.core import hypergeometric_tail, normal_tail

FOLDS = 5
RIDGE = (
    0.2  # of the number of samples, for columns of unit variance: best of 0.001 to 1 on six sets
)
TOPS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5)  # shares of the highest scores
# Every fold is scored by the others and scores them, so a chance difference counts twice: the
# variance of a cross-fitted statistic is twice that of independent folds, and its tail
# probability the square root of theirs.
TWICE = 2.0
# The counts at six shares and the mean are nested and far from independent. In 28,000 comparisons
# of equal sources (1 to 200 columns, 60 + 40 to 200 + 2,000 samples) a factor of two gave p < 0.001
# in at most 0.0013 and p < 0.01 in at most 0.008 of the cases; three leaves a margin.
TESTS = 3
SURE = 2.4 * math.sqrt(TWICE)  # standard errors of the lower bound, one-sided 99 %


def average_ranks(values: Tensor) -> Tensor:
    """Rank every column from 1; equal values share the mean of their ranks.

    Ranks by position would tell training from test samples wherever values are equal.

    Args:
        values: One sample per row.

    >>> average_ranks(torch.tensor([[5.0], [1.0], [5.0]])).flatten().tolist()
    [2.5, 1.0, 2.5]
    """
    columns = values.T.contiguous()
    ordered = columns.sort(1).values
    below = torch.searchsorted(ordered, columns)
    up_to = torch.searchsorted(ordered, columns, right=True)
    return ((below + up_to + 1).double() / 2).T


def normal_scores(values: Tensor) -> Tensor:
    """Turn every column into normal scores of its ranks, and add their squares; unit variance.

    Args:
        values: One sample per row; constant columns are left out.
    """
    shares = (average_ranks(values) - 0.5) / len(values)
    scores = math.sqrt(2) * torch.erfinv(2 * shares - 1)
    both = torch.cat([scores, scores.square() - 1], 1).float()
    spread = both.std(0)
    live = spread > 1e-6
    return (both[:, live] - both[:, live].mean(0)) / spread[live]


def cross_fitted(features: Tensor, domain: Tensor, fold: Tensor) -> Tensor:
    """Score every sample by a ridge discriminant that was fitted on the other folds.

    Args:
        features: One row per sample, columns of unit variance.
        domain: 0 for training and 1 for test samples.
        fold: The number of the fold of each sample.
    """
    target = domain - domain.mean()
    parts = [(features[fold == k], target[fold == k]) for k in range(FOLDS)]
    grams = torch.stack([part.T @ part for part, _ in parts])
    moments = torch.stack([part.T @ goal for part, goal in parts])
    ridge = RIDGE * len(features) * torch.eye(features.shape[1])
    weights: Tensor = torch.linalg.solve(grams.sum(0) - grams + ridge, moments.sum(0) - moments)
    return (features * weights[fold]).sum(1)


def tail_test(
    scores: Tensor, domain: Tensor, fold: Tensor, random: torch.Generator
) -> tuple[float, float, float]:
    """Count test samples among the highest scores of each fold, against chance.

    Args:
        scores: Cross-fitted scores.
        domain: 0 for training and 1 for test samples.
        fold: The number of the fold of each sample.
        random: Breaks ties.

    Returns:
        The p-value, a lower bound of the total variation distance, and the mean AUC of the folds.
    """
    order = torch.randperm(len(scores), generator=random)
    order = order[scores[order].argsort(descending=True, stable=True)]
    order = order[fold[order].argsort(stable=True)]
    sizes = torch.bincount(fold, minlength=FOLDS)
    place = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[fold[order]]
    ranks = torch.empty(len(order), dtype=torch.long).scatter_(0, order, place)
    total, marked = len(scores), int(domain.sum())
    least, share = 1.0, 0.0
    for top in TOPS:
        high = ranks < (top * sizes.double()).round()[fold]
        hits, drawn = int(domain[high].sum()), int(high.sum())
        least = min(least, hypergeometric_tail(hits, drawn, marked, total))
        error = math.sqrt(top * (1 - top) * (1 / marked + 1 / (total - marked)))
        excess = hits / marked - (drawn - hits) / (total - marked)
        share = max(share, excess - SURE * error)
    auc, error = _auc(scores, domain, fold)
    mean = normal_tail((auc - 0.5) / error / math.sqrt(TWICE))
    # A tail that is rounded to zero is below 1e-300, but its root need not be.
    p_value = min(1.0, TESTS * min(max(least, 1e-300) ** (1 / TWICE), mean))
    return p_value, share, auc


def _auc(scores: Tensor, domain: Tensor, fold: Tensor) -> tuple[float, float]:
    """Return the mean AUC of the folds and its standard error for independent folds."""
    found, variance, used = 0.0, 0.0, 0
    for k in range(FOLDS):
        inside, test = scores[fold == k], domain[fold == k] > 0
        own, other = int((~test).sum()), int(test.sum())
        if own and other:
            ranks = average_ranks(inside[:, None])[:, 0]
            found += (float(ranks[test].sum()) - other * (other + 1) / 2) / (own * other)
            variance += (own + other + 1) / (12 * own * other)
            used += 1
    return found / max(used, 1), math.sqrt(variance) / max(used, 1)


def kolmogorov(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the two-sample Kolmogorov–Smirnov distance of every column, with p-values.

    The p-values use the first term of the limit, which bounds it from above; ties make them larger.

    Args:
        train: One training sample per row.
        test: One test sample per row.

    >>> distance, p = kolmogorov(torch.arange(100.0)[:, None], 50 + torch.arange(100.0)[:, None])
    >>> round(float(distance), 2), float(p) < 1e-10
    (0.5, True)
    """
    own, other = (side.T.contiguous().sort(1).values for side in (train, test))
    pool = torch.cat([own, other], 1)
    below = [
        torch.searchsorted(side, pool, right=True).double() / side.shape[1] for side in (own, other)
    ]
    distance = (below[0] - below[1]).abs().amax(1)
    size = len(train) * len(test) / (len(train) + len(test))
    return distance, (2 * torch.exp(-2 * size * distance.square())).clamp_max(1.0)
