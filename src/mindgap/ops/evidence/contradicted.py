"""How strongly the reference predictor contradicts every target of the training and test data."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import InputError, Subject, Which
from mindgap.ops.evidence.reference import reference
from mindgap.ops.evidence.rows import rows
from mindgap.ops.samples import has_twin

BINS = 10  # of the reference's margin; more only thin out the strata
STRATUM = 30  # samples per stratum on average; smaller strata hold too few of either split
# Quantiles of the residuals at which a regression is cut: wrong targets are in the tail.
CUTS = (0.5, 0.75, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)
LEAST = 50  # different samples per split below which nothing can be said


@dataclasses.dataclass(frozen=True)
class _Marks:
    """How strongly the reference predictor contradicts every sample of both splits.

    Args:
        scores: How much likelier a wrong target is to look like this than a right one, minus one.
        rate_scores: Simpler scores whose excess is proportional to the share of wrong targets.
        noise: What ``rate_scores`` is on average for wrong targets.
        strata: Within which samples are exchangeable if no target is wrong.
        doubt: How far the target is from what the reference predicts; it orders equal scores.
        given: The class, or -1 in a regression.
        suggested: The class that the reference predicts, or -1.
    """

    scores: Tensor
    rate_scores: Tensor
    noise: Tensor
    strata: Tensor
    doubt: Tensor
    given: Tensor
    suggested: Tensor


@dataclasses.dataclass(frozen=True)
class Contradicted(_Marks):
    """Marks, and which samples they belong to.

    Args:
        train: Whether the sample is a training sample.
        places: Its place in its split.
        classes: The number of classes, or 0.
    """

    train: Tensor
    places: Tensor
    classes: int

    def side(self, which: Which) -> Tensor:
        """Whether each sample is of this split."""
        return self.train if which == "train" else ~self.train


def contradicted(subject: Subject, learned: Which = "train") -> Contradicted:
    """Score every target by how strongly the reference predictor contradicts it.

    Args:
        subject: A classification or regression with test data.
        learned: The split from which the predictor learns.
    """
    if subject.task == "multilabel":
        raise InputError(
            "Wrong labels are looked for in a classification or regression, got several labels per "
            "sample. Test one label at a time."
        )
    key = ("contradicted targets", learned)
    return subject.cached(key, lambda: _contradicted(subject, learned))


def _contradicted(subject: Subject, learned: Which) -> Contradicted:
    found = reference(subject, learned)
    # A copy in the training data tells the reference the target: of either split, such samples say
    # nothing about the others.
    both: tuple[Which, ...] = ("train", "test")
    alone = [~has_twin(subject, which)[rows(subject, which).places] for which in both]
    places = [rows(subject, which).places[alone[k]] for k, which in enumerate(both)]
    if min(map(len, places)) < LEAST:
        raise InputError(
            f"Wrong labels need at least {LEAST} different samples per split, got "
            f"{min(map(len, places))}. Add data."
        )
    scores = torch.cat([found.train[alone[0]], found.test[alone[1]]]).double()
    targets = torch.cat([found.train_targets[alone[0]], found.test_targets[alone[1]]]).double()
    make = _of_classes if found.classification else _of_numbers
    train = torch.arange(len(scores)) < len(places[0])
    classes = targets.shape[1] if found.classification else 0
    return Contradicted(
        **vars(make(scores, targets)), train=train, places=torch.cat(places), classes=classes
    )


def _of_classes(scores: Tensor, targets: Tensor) -> _Marks:
    """Score labels by the rank of the given class among all, at this margin of the first."""
    given, classes = targets.argmax(1), scores.shape[1]
    own = scores.gather(1, given[:, None])
    group = _grouped((scores > own).sum(1))
    sizes = _grouped(torch.arange(classes)).bincount().double()
    top = scores.topk(2, 1).values
    bins = _binned(top[:, 0] - top[:, 1], torch.arange(1, BINS) / BINS)
    cell = bins * len(sizes) + group
    counts = cell.bincount(minlength=BINS * len(sizes)).view(BINS, -1) + 0.5 * sizes / classes
    share = counts / counts.sum(1, keepdim=True)
    wrong = (sizes - share) / (classes - 1)  # the shares if labels are drawn from all other classes
    few = max(1, min(BINS, len(given) // (STRATUM * classes)))
    missed = 1 - share[:, 0]
    # Weights of single bins would favor those that hold few wrong labels by chance: the surer half
    # of the bins shares a floor.
    floor = torch.maximum(missed, missed[BINS // 2 :].mean())
    weight = (1 - missed * classes / (classes - 1)).clamp_min(0.05) / (floor * (1 - floor))
    return _Marks(
        scores=(wrong / share).flatten()[cell] - 1,
        rate_scores=(weight[bins] * (group > 0)),
        noise=(weight * (1 - missed / (classes - 1)))[bins],
        strata=given * BINS + bins * few // BINS,
        doubt=top[:, 0] - own[:, 0],
        given=given,
        suggested=scores.argmax(1),
    )


def _grouped(ranks: Tensor) -> Tensor:
    """Put ranks 3 to 4, 5 to 8, … in a group each: single ranks of many classes are too rare."""
    return torch.where(ranks < 3, ranks, (ranks - 1).clamp_min(1).double().log2().long() + 2)


def _of_numbers(scores: Tensor, targets: Tensor) -> _Marks:
    """Score targets by the size of the residual, against that of targets of other samples."""
    scale = targets.std(0).clamp_min(1e-12)
    size = ((targets - scores) / scale).norm(dim=1)
    random = torch.Generator().manual_seed(0)
    draws = [torch.randperm(len(targets), generator=random) for _ in range(5)]
    wrong = torch.cat([((targets[draw] - scores) / scale).norm(dim=1) for draw in draws])
    edges = torch.quantile(size, torch.tensor(CUTS).double()).unique()
    cell, other = torch.bucketize(size, edges), torch.bucketize(wrong, edges)
    share = cell.bincount(minlength=len(edges) + 1).double() + 1
    share = share / share.sum()
    drawn = other.bincount(minlength=len(edges) + 1).double()
    drawn = drawn / drawn.sum()
    ratio = drawn / share - 1
    level = (targets / scale).mean(1)
    few = max(1, min(BINS, len(level) // STRATUM))
    strata = _binned(level, torch.arange(1, few) / few)
    noise = (drawn * ratio).sum().expand(len(size))
    nothing = torch.full_like(strata, -1)
    return _Marks(ratio[cell], ratio[cell], noise, strata, size, nothing, nothing)


def _binned(values: Tensor, levels: Tensor) -> Tensor:
    if not len(levels):
        return torch.zeros(len(values), dtype=torch.long)
    return torch.bucketize(values, torch.quantile(values, levels.double()))
