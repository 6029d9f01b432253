"""Do targets and predictions belong together: renamed classes, and targets moved by some places."""

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from mindgap.core import Subject, Task, Which, align, binomial_upper_tail, normal_tail

CODES = 64  # numbers that stand for a class if there are more classes
NEIGHBORS = (-3, -2, -1, 1, 2, 3)  # lags that tell a peak from a slope
MOVED = 0.01  # p-value above which a cycle of renamed classes is dropped


@dataclasses.dataclass(frozen=True)
class Renamed:
    """The renaming of the classes under which predictions agree best with the labels.

    Args:
        names: For every label the class that it stands for.
        moved: The classes that are renamed.
        before: The share of samples of these classes that agree as they are.
        after: The share that agree when renamed.
        p_value: The chance of that gain if the labels are right, over all renamings.
    """

    names: Tensor
    moved: tuple[int, ...]
    before: float
    after: float
    p_value: float


def renamed(labels: Tensor, predicted: Tensor, classes: int) -> Renamed | None:
    """Find the best renaming of the classes, or None if they agree best as they are.

    Args:
        labels: Class numbers.
        predicted: Class numbers that a model predicts.
        classes: The number of classes.

    >>> labels = torch.tensor([0, 1, 2, 0, 1, 2]).repeat(20)
    >>> renamed(labels, torch.tensor([1, 0, 2])[labels], 3).names
    tensor([1, 0, 2])
    """
    from scipy.optimize import linear_sum_assignment

    counts = torch.zeros(classes, classes, dtype=torch.float64)
    counts.index_put_((labels, predicted), torch.ones(len(labels)).double(), accumulate=True)
    # Classes without samples stay where they are.
    best = torch.as_tensor(linear_sum_assignment(-(counts + 1e-6 * torch.eye(classes)).numpy())[1])
    names = torch.arange(classes)
    for cycle in _cycles(best):
        lost, won = counts[cycle, cycle].sum(), counts[cycle, best[cycle]].sum()
        if binomial_upper_tail(int(won), int(won + lost), 0.5) < MOVED:
            names[cycle] = best[cycle]
    moved = (names != torch.arange(classes)).nonzero().flatten()
    if not len(moved):
        return None
    lost, won = counts[moved, moved].sum(), counts[moved, names[moved]].sum()
    total = float(counts[moved].sum())
    # Every choice of that many classes in any order was tried.
    tried = math.lgamma(classes + 1) - math.lgamma(classes - len(moved) + 1)
    p_value = math.exp(min(0.0, _log_tail(int(won), int(won + lost)) + tried))
    return Renamed(
        names=names,
        moved=tuple(moved.tolist()),
        before=float(lost) / total,
        after=float(won) / total,
        p_value=p_value,
    )


def _log_tail(hits: int, trials: int) -> float:
    """Return the logarithm of the tail of fair trials, or Chernoff's bound where it rounds to zero."""
    tail = binomial_upper_tail(hits, trials, 0.5)
    if tail > 0:
        return math.log(tail)
    rate = torch.tensor([hits, trials - hits], dtype=torch.float64) / trials
    return -trials * (math.log(2) - float(torch.special.entr(rate).sum()))


def _cycles(names: Tensor) -> Iterator[Tensor]:
    left = set(range(len(names)))
    while left:
        cycle = [min(left)]
        while int(names[cycle[-1]]) != cycle[0]:
            cycle.append(int(names[cycle[-1]]))
        left -= set(cycle)
        if len(cycle) > 1:
            yield torch.tensor(cycle)


@dataclasses.dataclass(frozen=True)
class Lag:
    """How well predictions agree with targets that are moved by some places.

    Args:
        agreement: For every lag the share of equal classes, or the rank correlation.
        best: The lag, not zero, that exceeds its neighbors most; negative if targets come early.
        usual: What the best of its neighbors agrees.
        p_value: The chance of such a peak, over all lags.
    """

    agreement: Tensor
    best: int
    usual: float
    p_value: float

    @property
    def now(self) -> float:
        """The agreement of the targets as they are."""
        return float(self.agreement[0])

    @property
    def then(self) -> float:
        """The agreement at the best lag."""
        return float(self.agreement[self.best])


def lag(subject: Subject, which: Which) -> Lag:
    """Find by how many places the targets of a split are moved.

    Args:
        subject: A classification or regression.
        which: The split.
    """
    outputs = subject.predictions(which).detach().cpu()
    targets = align(subject.outputs(which), subject.targets(which)).detach().cpu()
    return subject.cached(("lag", which), lambda: find_lag(outputs, targets, subject.task))


def find_lag(predicted: Tensor, targets: Tensor, task: Task) -> Lag:
    """Find the lag at which targets agree with predictions, by a Fourier transform.

    Args:
        predicted: Predictions in the order of the samples.
        targets: Targets in the same order.
        task: ``"classification"`` or ``"regression"``.

    >>> targets = torch.randint(0, 5, (300,), generator=torch.Generator().manual_seed(0))
    >>> find_lag(targets, targets.roll(2), "classification").best
    2
    """
    count = len(targets)
    total = torch.zeros(count // 2 + 1, dtype=torch.complex128)
    for codes in _coded(predicted, targets, task):
        waves = [torch.fft.rfft(code) for code in codes]
        total += waves[0].conj() * waves[1]
    agreement = torch.fft.irfft(total, n=count) / count
    places = torch.arange(count)[:, None] + torch.tensor(NEIGHBORS)
    # The true agreement at lag zero must not hide its neighbors.
    around = torch.where(places % count == 0, -torch.inf, agreement[places % count])
    usual = around.amax(1)
    peak = agreement - usual
    peak[0] = -torch.inf
    best = int(peak.argmax())
    at, base = float(agreement[best]), max(float(usual[best]), float(agreement.median()))
    return Lag(
        agreement=agreement,
        best=best if best <= count // 2 else best - count,
        usual=base,
        p_value=min(1.0, count * _chance(at, base, count, task)),
    )


def _coded(predicted: Tensor, targets: Tensor, task: Task) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield columns whose inner products add up to equality of classes, or rank correlations."""
    if task == "classification":
        classes = int(max(predicted.max(), targets.max())) + 1
        if classes <= CODES:
            for label in range(classes):
                yield (predicted == label).double(), (targets == label).double()
            return
        random = torch.Generator().manual_seed(0)
        signs = torch.randint(0, 2, (CODES, 100_000), generator=random).double() * 2 - 1
        for column in signs / math.sqrt(CODES):
            yield column[predicted % len(column)], column[targets % len(column)]
        return
    first, second = (values.reshape(len(values), -1).double().T for values in (predicted, targets))
    for one, other in zip(first, second, strict=True):
        yield _ranked(one) / math.sqrt(len(first)), _ranked(other) / math.sqrt(len(first))


def _ranked(column: Tensor) -> Tensor:
    """Return centered ranks whose squares add up to the number of samples."""
    column = column.contiguous()
    ordered = column.sort().values
    # Equal numbers share their rank: ranked by position, they would agree without any reason.
    ends = [torch.searchsorted(ordered, column, right=right) for right in (False, True)]
    ranks = (ends[0] + ends[1]).double()
    ranks = ranks - ranks.mean()
    scaled: Tensor = ranks / ranks.norm().clamp_min(1e-12) * math.sqrt(len(ranks))
    return scaled


def _chance(at: float, base: float, count: int, task: Task) -> float:
    if task == "classification":
        return binomial_upper_tail(round(at * count), count, min(max(base, 1 / count), 1.0))
    turned = [math.atanh(min(max(value, -0.9999), 0.9999)) for value in (at, base)]
    return normal_tail((turned[0] - turned[1]) * math.sqrt(max(count - 3, 1)))
