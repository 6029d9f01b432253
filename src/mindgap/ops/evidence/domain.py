"""Tell test samples from training samples: a two-sample test that finds a small foreign share.

A ridge discriminant is fitted on four folds and scores the samples of the fifth. A few foreign test
samples hardly move the mean of the scores, but they fill the top of them, and the number of test
samples there has an exact distribution if both splits come from one source.
"""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import Subject, hypergeometric_tail, normal_tail
from mindgap.ops.evidence.rows import Rows, components, rows, spectra, standardized

MOST = 5_000  # samples per split that are compared
FEWEST = 20  # samples per split below which nothing is compared
FOLDS = 5
RIDGE = (
    0.2  # of the number of samples, for columns of unit variance: best of 0.001 to 1 on six sets
)
TOPS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5)  # shares of the highest scores
# Every fold is scored by the others and scores them, so a chance difference counts twice: the
# variance of a cross-fitted statistic is twice that of independent folds, and its tail
# probability the square root of theirs.
TWICE = 2.0
# The counts at six shares and the mean are nested and far from independent. In 26,000 comparisons
# of equal sources (1 to 200 columns, 60 + 40 to 200 + 2,000 samples) a factor of two gave p < 0.001
# in at most 0.0013 and p < 0.01 in at most 0.008 of the cases; three leaves a margin.
TESTS = 3
SURE = 2.4 * math.sqrt(TWICE)  # standard errors of the lower bound, one-sided 99 %
FAMILIAR = 0.95  # quantile of the training samples' scores beyond which a sample looks foreign
BINS = 20  # of equal size, into which targets of a regression are put to be matched


@dataclasses.dataclass(frozen=True)
class DomainTest:
    """How test samples differ from training samples of the same targets.

    Args:
        p_value: How likely chance alone separates two halves of one source so well.
        share: Lower bound of the share of test samples that the training data do not explain.
        auc: Chance that a test sample has a higher score than a training sample.
        train: The training samples that were compared, as numbers of their rows.
        test: The test samples that were compared.
        train_scores: How foreign each looks, as a normal score among the training samples.
        test_scores: The same of the test samples.
    """

    p_value: float
    share: float
    auc: float
    train: Tensor
    test: Tensor
    train_scores: Tensor
    test_scores: Tensor

    @property
    def foreign(self) -> Tensor:
        """Which test samples look more foreign than nineteen of twenty training samples."""
        limit = torch.quantile(self.train_scores, FAMILIAR)
        return self.test_scores > limit


def domain_test(subject: Subject, *, matched: bool = True) -> DomainTest | None:
    """Compare test inputs with training inputs, once per subject; None if there are too few.

    Args:
        subject: With test data.
        matched: Whether to compare equal shares of every class, or of every range of targets.

    >>> x = torch.randn(1200, 3, generator=torch.Generator().manual_seed(0))
    >>> x[1000:1100] += 6
    >>> y = torch.arange(1200) % 2
    >>> data = (x[:600], y[:600]), (x[600:], y[600:])
    >>> found = domain_test(Subject(torch.nn.Linear(3, 2), "cross_entropy", *data))
    >>> found.p_value < 1e-9, 0.08 < found.share < 100 / 600, int(found.foreign[400:500].sum())
    (True, True, 100)
    """
    return subject.cached(("domain test", matched), lambda: _domain_test(subject, matched))


def _domain_test(subject: Subject, matched: bool) -> DomainTest | None:
    random = torch.Generator().manual_seed(0)
    splits = rows(subject, "train"), rows(subject, "test")
    kept, groups = _without_copies(splits[0].values, splits[1].values, random)
    chosen = _matched(*strata(subject), *kept, random) if matched else kept
    train, test = (_some(part, random) for part in chosen)
    if min(len(train), len(test)) < FEWEST:
        return None
    features = domain_features(subject)
    first = len(splits[0].values)
    used = torch.cat([train, first + test])
    domain = torch.cat([torch.zeros(len(train)), torch.ones(len(test))])
    fold = _folds(groups[used], domain, random)
    scores = cross_fitted(normal_scores(features[used]), domain, fold)
    p_value, share, auc = tail_test(scores, domain, fold, random)
    ranked = _among_training(scores, domain, fold)
    return DomainTest(p_value, share, auc, train, test, ranked[: len(train)], ranked[len(train) :])


def _some(index: Tensor, random: torch.Generator) -> Tensor:
    return index[torch.randperm(len(index), generator=random)[:MOST]].sort().values


def _without_copies(
    train: Tensor, test: Tensor, random: torch.Generator
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return the samples to compare, and for every sample the number of its group of equal ones.

    Copies of a training sample in several folds would make training samples recognizable, so they
    go to one fold, and all but one are dropped. Where few values are possible, equal samples are
    natural, and as common between the splits as within one. They are kept there: to drop them
    would thin out the larger split more than the smaller.
    """
    keys = torch.randn(train.shape[1], generator=random, dtype=torch.float64)
    marks = torch.cat([train.double() @ keys, test.double() @ keys])
    groups = torch.unique(marks, return_inverse=True)[1]
    own, other = groups[: len(train)], groups[len(train) :]
    count = int(groups.max()) + 1
    counts = [torch.bincount(side, minlength=count).double() for side in (own, other)]
    across = float((counts[0] * counts[1]).sum()) / (len(train) * len(test))
    kept = []
    for side, number in zip((own, other), counts, strict=True):
        within = float((number * (number - 1)).sum()) / max(len(side) * (len(side) - 1), 1)
        natural = across > within / 3
        kept.append(torch.arange(len(side)) if natural else _first_of_each(side, count))
    return (kept[0], kept[1]), groups


def _first_of_each(groups: Tensor, count: int) -> Tensor:
    places = torch.full((count,), len(groups))
    places.scatter_reduce_(0, groups, torch.arange(len(groups)), "amin")
    return places[places < len(groups)]


def strata(subject: Subject) -> tuple[Tensor, Tensor]:
    """Return the number of the class, of the set of labels or of the range of targets of each row.

    Args:
        subject: With test data.
    """
    parts = [
        subject.targets(which).detach().cpu()[rows(subject, which).places]
        for which in ("train", "test")
    ]
    first, pool = len(parts[0]), torch.cat(parts)
    if subject.task == "multilabel":
        pool = torch.unique(pool.reshape(len(pool), -1), dim=0, return_inverse=True)[1]
    elif subject.task == "regression":
        level = pool.reshape(len(pool), -1).double().mean(1)
        steps = torch.arange(1, BINS, dtype=torch.float64) / BINS
        pool = torch.bucketize(level, torch.quantile(level, steps).unique())
    return pool[:first], pool[first:]


def _matched(
    own: Tensor, other: Tensor, train: Tensor, test: Tensor, random: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Choose samples such that every stratum has the same share in both splits.

    Different shares of the classes would look like other inputs. Of all ratios of training to test
    samples the one is taken that leaves the most information.
    """
    count = int(max(own.max(), other.max())) + 1
    have = torch.bincount(own[train], minlength=count).double()
    wanted = torch.bincount(other[test], minlength=count).double()
    ratios = torch.logspace(-1.5, 1.5, 61, dtype=torch.float64)
    left = torch.minimum(wanted, have / ratios[:, None]).sum(1)
    ratio = float(ratios[(left * ratios / (1 + ratios)).argmax()])
    tests = torch.minimum(wanted, have / ratio)
    trains = torch.minimum((tests * ratio).round(), have)
    return _drawn(own, train, trains, random), _drawn(other, test, tests.floor(), random)


def _drawn(strata: Tensor, index: Tensor, counts: Tensor, random: torch.Generator) -> Tensor:
    """Draw so many samples of every stratum."""
    order = index[torch.randperm(len(index), generator=random)]
    order = order[strata[order].argsort(stable=True)]
    kinds = strata[order]
    starts = torch.searchsorted(kinds, torch.arange(len(counts)))
    place = torch.arange(len(order)) - starts[kinds]
    return order[place < counts[kinds]].sort().values


def _folds(groups: Tensor, domain: Tensor, random: torch.Generator) -> Tensor:
    """Put equal samples into one fold, and about as many of each split into every fold."""
    _, own = torch.unique(groups, return_inverse=True)
    count = int(own.max()) + 1
    home = torch.zeros(count).scatter_(0, own, domain)
    key = torch.rand(count, generator=random) + 2 * home
    turn = torch.empty(count, dtype=torch.long)
    turn[key.argsort()] = torch.arange(count) % FOLDS
    return turn[own]


def domain_features(subject: Subject) -> Tensor:
    """Describe the rows of both splits for a comparison: components, summaries, few columns.

    Args:
        subject: With test data.
    """
    parts = [torch.cat(components(subject))]
    pool = torch.cat(standardized(subject))
    if pool.shape[1] > 8:
        rest = (pool.square().sum(1) - parts[0].square().sum(1)).clamp_min(0)
        spread = pool.std(1)
        skew = (pool - pool.mean(1, keepdim=True)).pow(3).mean(1) / spread.pow(3).clamp_min(1e-9)
        ends = pool.amin(1), pool.amax(1)
        parts.append(torch.stack([pool.mean(1), spread, skew, *ends, rest], 1))
    splits = rows(subject, "train"), rows(subject, "test")
    parts += [torch.cat([_of_kind(split) for split in splits])]
    if pool.shape[1] <= 64:
        parts.append(pool)
    return torch.cat(parts, 1)


def _of_kind(split: Rows) -> Tensor:
    """Return summaries that only images or only sequences have."""
    if math.prod(split.shape) != split.values.shape[1] or split.kind not in ("image", "sequence"):
        return split.values[:, :0]
    inputs = split.inputs
    if split.kind == "sequence":
        steps = inputs.diff(dim=1).abs().mean(1) if split.shape[0] > 1 else inputs.mean(1)
        return torch.cat([spectra(inputs), steps], 1)
    wide, high = (inputs.diff(dim=axis).abs().mean((1, 2, 3)) for axis in (3, 2))
    light = inputs.abs().mean(1)
    total = light.sum((1, 2)).clamp_min(1e-9)
    across = (light.sum(1) * torch.arange(light.shape[2])).sum(1) / total
    down = (light.sum(2) * torch.arange(light.shape[1])).sum(1) / total
    edges = inputs.mean(1).diff(n=2, dim=2)
    sharp = edges.square().mean((1, 2)).sqrt()
    skew = edges.pow(3).mean((1, 2)) / sharp.pow(3).clamp_min(1e-9)
    summaries = torch.stack([wide, high, across, down, sharp, skew], 1)
    return torch.cat([summaries, inputs.mean((2, 3))], 1)


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
    p_value = min(1.0, TESTS * min(least ** (1 / TWICE), mean))
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


def _among_training(scores: Tensor, domain: Tensor, fold: Tensor) -> Tensor:
    """Give the scores of every fold the mean 0 and deviation 1 of its training samples."""
    found = torch.empty_like(scores)
    for k in range(FOLDS):
        inside = fold == k
        own = scores[inside & (domain == 0)]
        spread = own.std().clamp_min(1e-9) if len(own) > 1 else torch.ones(())
        center = own.mean() if len(own) else torch.zeros(())
        found[inside] = (scores[inside] - center) / spread
    return found


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
