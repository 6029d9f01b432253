"""Inputs that say something about the target in the training data and nothing in the test data."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core import Subject, normal_tail
from mindgap.ops.evidence.domain import domain_test
from mindgap.ops.evidence.inputs import channels, unchanneled
from mindgap.ops.evidence.rows import Rows, rows

# Shares of the target's variance that an input explains: what it must lose to be a suspect, and
# what it may keep in the test data. In 270 random splits of ten data sets no input lost more than
# 0.12, except for one pixel of 500 + 500 images that 49 images light: 0.32, or 4.8 of the standard
# errors below. At 1,200 + 600 samples and above nothing lost more than 0.08.
LOSS, KEPT = 0.15, 0.3
SURE = 6.0  # standard errors: the search over inputs and the rough error need a margin
INFORMATIVE = 0.02  # share of the target's variance below which an input says nothing
OTHERS = 0.25  # what the other inputs together must keep, or the test targets are to blame
ALIKE = 0.5  # mean correlation of suspects that are copies of one quantity
SHIFTED = 1e-3  # p-value of an input shift below which only familiar test samples are looked at
MOST = 64  # inputs that one shortcut may have, or a quarter of all: every class may have its patch
VARIED = 20  # samples, at least, that the variance of an input must come from
FEWEST = 50  # samples per split
FEW = 5  # samples of a class per split


@dataclasses.dataclass(frozen=True)
class Lost:
    """Inputs that lost their relation to the target.

    Args:
        own: Share of the target's variance that the worst of them explains in the training data.
        other: The same in the test data.
        p_value: How likely chance makes any input lose so much.
        losses: What every input loses.
        worst: The number of the worst input; of its channel, if ``inputs`` is None.
        inputs: All suspects, or None where the mean of a channel is the suspect.
    """

    own: float
    other: float
    p_value: float
    losses: Tensor
    worst: int
    inputs: Tensor | None


def lost_relation(subject: Subject) -> Lost | None:
    """Find inputs, or means of channels, that explain the target in the training data only.

    Args:
        subject: With test data; its inputs are one tensor of numbers.
    """
    splits = rows(subject, "train"), rows(subject, "test")
    goals, kept = _goals(subject, *splits, familiar=_familiar(subject, len(splits[1].values)))
    if min(map(len, goals)) < FEWEST:
        return None
    values = [_with_means(split)[some] for split, some in zip(splits, kept, strict=True)]
    first, second = zip(values, goals, strict=True)
    own, other, plain = explained(*first), explained(*second, like=first), explained(*second)
    losses = torch.where(other < KEPT * own + 0.01, own - other, torch.zeros_like(own))
    losses = torch.where(_spread_out(values[0]), losses, torch.zeros_like(own))
    worst, width = int(losses.argmax()), splits[0].values.shape[1]
    loss, error = float(losses[worst]), _error(float(own[worst]), *map(_size, goals))
    if loss < max(LOSS, SURE * error):
        return None
    if worst >= width:  # what the pixels say apart from the mean of their channel
        flat = [_centered(split)[some] for split, some in zip(splits, kept, strict=True)]
        rest = [explained(*side) for side in zip(flat, goals, strict=True)]
        single = True
        suspects = torch.zeros(width, dtype=torch.bool)
    else:
        rest = [own[:width], plain[:width]]
        suspects = losses[:width] > 0.5 * loss
        single = _alike(values[0][:, :width][:, suspects])
    if not _others_keep(rest[0], rest[1], suspects, single):
        return None
    return Lost(
        float(own[worst]),
        float(other[worst]),
        min(1.0, len(losses) * normal_tail(loss / error)),
        (own - other)[:width],
        worst if worst < width else worst - width,
        _suspects(subject, own[:width], other[:width], loss) if worst < width else None,
    )


def _suspects(subject: Subject, own: Tensor, other: Tensor, loss: float) -> Tensor:
    """Return all inputs that lost much, judged by all test samples and, loosely, by familiar ones.

    Test samples with a mark in an unusual place look foreign, but they show which inputs are marks.
    """
    test = rows(subject, "test")
    every = torch.ones(len(test.values), dtype=torch.bool)
    goals, kept = _goals(subject, rows(subject, "train"), test, familiar=every)
    losses = own - torch.minimum(other, explained(test.values[kept[1]], goals[1]))
    losses = torch.where(other < 2 * KEPT * own, losses, torch.zeros_like(losses))
    most = max(1, min(MOST, len(losses) // 2), len(losses) // 4)
    order = losses.argsort(descending=True)[:most]
    return order[losses[order] > max(0.25 * loss, 0.05)].sort().values


def _spread_out(values: Tensor) -> Tensor:
    """Tell which inputs vary in many samples: a pixel that three samples light tells their class."""
    squares = (values - values.mean(0)).square()
    return squares.sum(0).square() > VARIED * squares.square().sum(0)


def _with_means(split: Rows) -> Tensor:
    grouped = channels(split)
    return torch.cat([split.values, grouped.mean(2)], 1) if grouped.shape[2] > 1 else split.values


def _centered(split: Rows) -> Tensor:
    grouped = channels(split)
    return unchanneled(grouped - grouped.mean(2, keepdim=True), split)


def _size(goals: Tensor) -> float:
    """Return the number of samples, or of equally many per class that are as good."""
    sizes = goals.sum(0)[goals.sum(0) > 0]
    whole = bool((goals.sum(1) == 1).all()) and len(sizes) > 1
    return float(len(sizes) ** 2 / (1 / sizes).sum()) if whole else float(len(goals))


def _error(share: float, train: float, test: float) -> float:
    """Return the standard error of a difference of two shares of variance, rounded up."""
    share = min(max(share, 0.01), 0.99)
    return 2 * math.sqrt(share * (1 - share) * (1 / train + 1 / test)) + 2 / test


def _alike(values: Tensor) -> bool:
    """Tell whether columns are copies of one quantity."""
    return values.shape[1] == 1 or float(torch.corrcoef(values.T).abs().mean()) > ALIKE


def _others_keep(own: Tensor, other: Tensor, suspects: Tensor, single: bool) -> bool:
    """Tell whether inputs that are no suspects keep what they say about the target.

    Wrong test targets, and inverted images, take it from all of them. Where only suspects say anything, they must be
    one quantity: several that lost all they say mean wrong test targets, too.
    """
    rest = ~suspects & (own > INFORMATIVE)
    if not bool(rest.any()):
        return single
    return float(other[rest].sum()) > OTHERS * float(own[rest].sum())


def _goals(
    subject: Subject, train: Rows, test: Rows, *, familiar: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return targets as columns, of samples whose classes both splits have, and which those are."""
    own = subject.targets("train").detach().cpu()[train.places]
    other = subject.targets("test").detach().cpu()[test.places]
    if subject.task != "classification":
        every = torch.ones(len(own), dtype=torch.bool)
        flat = [side.reshape(len(side), -1).float() for side in (own, other)]
        return (flat[0], flat[1][familiar]), (every, familiar)
    count = int(max(own.max(), other.max())) + 1
    counts = [torch.bincount(side, minlength=count) for side in (own, other[familiar])]
    common = (torch.minimum(counts[0], counts[1]) >= FEW).nonzero().flatten()
    kept = torch.isin(own, common), torch.isin(other, common) & familiar
    first, second = own[kept[0]], other[kept[1]]
    return (F.one_hot(first, count).float(), F.one_hot(second, count).float()), kept


def _familiar(subject: Subject, count: int) -> Tensor:
    """Return which test samples to look at: all, or those that do not look foreign.

    A tenth of inverted images takes from every pixel what it says about the class.
    """
    every = torch.ones(count, dtype=torch.bool)
    found = domain_test(subject)
    if found is None or found.p_value > SHIFTED or float(found.foreign.double().mean()) > 0.5:
        return every
    every[found.test[found.foreign]] = False
    return every


def explained(values: Tensor, goals: Tensor, like: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return for every input the share of variance that it and the target have in common.

    It is one-way eta squared for classes, as if all were equally frequent, and the largest squared
    correlation for other targets, each without what chance gives.

    Args:
        values: One sample per row, one input per column.
        goals: Classes as zeros and a one per row, or other targets.
        like: Values and goals of other samples. Where they vary less, the share is one of their
            variance, so that noise on top of an input does not hide what it still says.

    >>> goals = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    >>> explained(torch.tensor([[0.0, 1], [0, 2], [1, 1], [1, 2]]), goals).tolist()
    [1.0, -0.5]
    """
    common, total = _common(values, goals)
    live = total > 1e-9 * total.max().clamp_min(1e-30)
    if like is not None:
        total = total.minimum(_common(*like)[1])
        live &= total > 0
    return torch.where(live, common / torch.where(live, total, 1.0), 0.0)


def _common(values: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variance that each input has in common with the target, and all of it."""
    one_hot = bool((goals.sum(1) == 1).all()) and bool(((goals == 0) | (goals == 1)).all())
    if one_hot and goals.shape[1] > 1:
        return _between(values, goals[:, goals.sum(0) > 0])
    centered, apart = values - values.mean(0), goals - goals.mean(0)
    total = centered.square().mean(0)
    spread = apart.square().sum(0).clamp_min(1e-30)
    common = ((centered.T @ apart).square() / spread).amax(1) / len(values)
    return common - total / len(values), total


def _between(values: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
    """Return both as if all classes were equally frequent, or other shares would change them."""
    sizes = goals.sum(0)[:, None]
    centered = values - values.mean(0)
    means = (goals.T @ centered) / sizes
    within = ((goals.T @ centered.square()) / sizes - means.square()).clamp_min(0)
    count = len(sizes)
    chance = (within / (sizes - 1).clamp_min(1)).mean(0) * (1 - 1 / count)
    between = means.var(0, correction=0)
    return between - chance, between + within.mean(0)
