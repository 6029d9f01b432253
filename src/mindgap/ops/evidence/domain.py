"""Tell test samples from training samples: which are compared, by what, and how foreign they look."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import Subject
from mindgap.ops.evidence.rows import FEW_COLUMNS, Rows, components, rows, spectra, standardized
from mindgap.ops.evidence.two_sample import FOLDS, cross_fitted, normal_scores, tail_test

MOST = 5_000  # samples per split that are compared
FEWEST = 20  # samples per split below which nothing is compared
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
    features = _features(subject, train, test)
    used = torch.cat([train, len(splits[0].values) + test])
    domain = torch.cat([torch.zeros(len(train)), torch.ones(len(test))])
    fold = _folds(groups[used], domain, random)
    scores = cross_fitted(normal_scores(features), domain, fold)
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


def _features(subject: Subject, train: Tensor, test: Tensor) -> Tensor:
    """Describe samples of both splits: components, summaries, and columns if there are few."""
    chosen = (train, test)
    first = torch.cat([side[some] for side, some in zip(components(subject), chosen, strict=True)])
    pool = torch.cat([side[some] for side, some in zip(standardized(subject), chosen, strict=True)])
    parts = [first]
    if pool.shape[1] > 8:
        rest = (pool.square().sum(1) - first.square().sum(1)).clamp_min(0)
        centered = pool - pool.mean(1, keepdim=True)
        spread = pool.std(1)
        skew = (centered * centered.square()).mean(1) / spread.pow(3).clamp_min(1e-9)
        ends = pool.amin(1), pool.amax(1)
        parts.append(torch.stack([pool.mean(1), spread, skew, *ends, rest], 1))
    splits = rows(subject, "train"), rows(subject, "test")
    parts.append(torch.cat([_of_kind(*side) for side in zip(splits, chosen, strict=True)]))
    if pool.shape[1] <= FEW_COLUMNS:
        parts.append(pool)
    return torch.cat(parts, 1)


def _of_kind(split: Rows, chosen: Tensor) -> Tensor:
    """Return summaries that only images or only sequences have."""
    if math.prod(split.shape) != split.values.shape[1] or split.kind not in ("image", "sequence"):
        return split.values[chosen, :0]
    inputs = split.inputs[chosen]
    if split.kind == "sequence":
        steps = inputs.diff(dim=1).abs().mean(1) if split.shape[0] > 1 else inputs.mean(1)
        return torch.cat([spectra(inputs), steps], 1)
    wide, high = (inputs.diff(dim=axis).abs().mean((1, 2, 3)) for axis in (3, 2))
    light = inputs.abs().mean(1)
    total = light.sum((1, 2)).clamp_min(1e-9)
    across = (light.sum(1) * torch.arange(light.shape[2])).sum(1) / total
    down = (light.sum(2) * torch.arange(light.shape[1])).sum(1) / total
    edges = (
        inputs.mean(1).diff(n=2, dim=2) if inputs.shape[3] > 2 else torch.zeros(len(inputs), 1, 1)
    )
    sharp = edges.square().mean((1, 2)).sqrt()
    skew = edges.pow(3).mean((1, 2)) / sharp.pow(3).clamp_min(1e-9)
    summaries = torch.stack([wide, high, across, down, sharp, skew], 1)
    return torch.cat([summaries, inputs.mean((2, 3))], 1)


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
