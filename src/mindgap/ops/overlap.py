"""Samples that two splits share: equal values in any precision, and near copies."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import Batch, Split, Subject
from mindgap.ops.samples import sample_hashes, tensors_of

TOLERANCE = 1e-3  # of a feature's standard deviation: as much as half precision changes
MANY = 16  # features, of which one may differ in a near copy; of fewer each one counts
NUMBERS = 2**24  # that are in memory at once
CACHED = 2**18  # that are projected at once
SPREAD_SAMPLES = 4096  # samples that estimate the standard deviations
CHANCE_SAMPLES = 2000  # training samples that tell how many near copies chance makes
CANDIDATES = 1000  # per sample; where more are as close, closeness says nothing
SURE = 4.0  # a sum of random signs exceeds 4 standard deviations in 1 of 1,500 cases at most
TOLERATED = 0.1  # share of held-out samples; discrete data have natural duplicates, but not more
ERRORS = 3.0  # standard errors by which an excess is no chance any more


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap:
    """Which held-out samples are, with their target, in the training data.

    Independent samples of discrete data may coincide. Held-out samples then coincide with training
    samples as often as training samples do with each other, because all are exchangeable. Only
    what exceeds that is a leak.

    Args:
        equal: One entry per held-out sample: whether a training sample has the same values.
        near: Whether one is a near copy, but none is equal.
        repeated: The share of training samples that equal another training sample.
        close: The share that are a near copy of another one. It is known where ``near`` has any.
        train_samples: The number of training samples.
        same: Whether both hold the same samples equally often, in any order.
    """

    equal: Tensor
    near: Tensor
    repeated: float
    close: float
    train_samples: int
    same: bool

    @property
    def share(self) -> float:
        """The share of held-out samples that are in the training data."""
        return float(self.equal.double().mean())

    @property
    def near_share(self) -> float:
        """The share of held-out samples that are near copies of training samples."""
        return float(self.near.double().mean())

    @property
    def leaks_equal(self) -> bool:
        """Whether more samples are equal than chance explains."""
        if not self.share:
            return False
        return self.same or not self.repeated or self._exceeds(self.share, self.repeated)

    @property
    def leaks_near(self) -> bool:
        """Whether more samples are near copies than chance explains."""
        # One near copy in the training data is allowed for: they may be too few to show any.
        usual = self.close + 1 / self.train_samples
        return bool(self.near.any()) and self._exceeds(self.near_share, usual)

    def _exceeds(self, share: float, usual: float) -> bool:
        usual = min(usual, 1.0)
        variance = usual * (1 - usual) * (1 / len(self.equal) + 1 / self.train_samples)
        return share > usual + ERRORS * math.sqrt(variance)


def overlap(held: Split, train: Split) -> Overlap:
    """Find the held-out samples that are, with their target, in the training data.

    Values are compared, not bits: -0.0 equals 0.0, and a number equals itself in the coarser
    precision of the two splits. A near copy differs in every feature by at most a thousandth of
    its standard deviation; of 16 features or more one may differ by any amount.

    Args:
        held: The held-out samples.
        train: The training samples.

    >>> from mindgap.core import as_split
    >>> train = as_split((torch.tensor([[0.1], [2.0], [3.0]]).double(), torch.tensor([0, 1, 1])))
    >>> found = overlap(as_split((torch.tensor([[0.1], [9.0]]), torch.tensor([0, 1]))), train)
    >>> found.share, found.leaks_equal
    (0.5, True)
    """
    known, asked = sample_hashes(train, like=held), sample_hashes(held, like=train)
    equal = torch.isin(asked, known)
    _, inverse, counts = known.unique(return_inverse=True, return_counts=True)
    repeated = counts[inverse] > 1
    near, close = torch.zeros_like(equal), 0.0
    if _width(held) == _width(train):
        search = _NearCopies(train, known)
        near = search.found(held, asked, torch.arange(len(held))) & ~equal
        if near.any():
            own = _spaced(len(train), CHANCE_SAMPLES)
            found = search.found(train, known, own) & ~repeated[own]
            close = float(found.double().mean())
    return Overlap(
        equal=equal,
        near=near,
        repeated=float(repeated.double().mean()),
        close=close,
        train_samples=len(train),
        same=torch.equal(asked.sort().values, known.sort().values),
    )


def shared_samples(subject: Subject) -> Overlap:
    """Find the test samples that are in the training data, once per subject.

    Args:
        subject: With test data.
    """
    return subject.cached("shared samples", lambda: overlap(subject.split("test"), subject.train))


def copied(hashes: Tensor) -> bool:
    r"""Tell whether samples repeat in a way that independent draws do not, as copies do.

    Let :math:`N_k` be the number of values that occur k times. If the samples are independent,
    :math:`k!\,E[N_k]` is close to a sum of :math:`\lambda^k e^{-\lambda}` over all values, for any
    distribution. By Cauchy and Schwarz :math:`E[N_k]^2 \le \frac{k+1}{k} E[N_{k-1}] E[N_{k+1}]`:
    many pairs need single samples and triples too. Every number gets three standard deviations.

    Args:
        hashes: One integer per sample, equal for equal samples.

    >>> draws = torch.randint(0, 50, (100,), generator=torch.Generator().manual_seed(0))
    >>> copied(draws), copied(torch.arange(50).repeat(2))
    (False, True)
    """
    counts = hashes.unique(return_counts=True)[1]
    times = [0.0, *counts.bincount(minlength=4)[1:].tolist(), 0.0]
    most = [value + ERRORS * math.sqrt(value) + ERRORS for value in times]
    least = [max(0.0, value - ERRORS * math.sqrt(value)) for value in times]
    return any(
        k * least[k] ** 2 > (k + 1) * most[k - 1] * most[k + 1] for k in range(2, len(times) - 1)
    )


class _NearCopies:
    """Finds near copies of training samples without comparing every pair.

    Features are divided at random into two halves, if one of them may differ: one half then agrees
    in every feature. Its projections on random signs are close for near copies, so only samples
    with close projections are compared feature by feature.
    """

    def __init__(self, train: Split, hashes: Tensor) -> None:
        self.train, self.known = train, hashes
        self.batch_size = max(1, NUMBERS // sum(_width(train)))
        batch = train.take(_spaced(len(train), min(SPREAD_SAMPLES, self.batch_size)))
        self.tolerance = TOLERANCE * _features(batch).std(0, correction=0) * _floating(batch)
        target = (
            batch.target.double().flatten(1) if batch.target.ndim > 1 else batch.target.double()
        )
        self.target_tolerance = (
            TOLERANCE * target.std(0, correction=0) * batch.target.is_floating_point()
        )
        width = len(self.tolerance)
        self.differing = int(width >= MANY)
        source = torch.Generator().manual_seed(0)
        order = torch.randperm(width, generator=source)
        self.halves = list(order.tensor_split(2)) if self.differing else [order]
        self.signs = torch.randint(0, 2, (width, 2), generator=source).double() * 2 - 1
        self.projected = self._projected(train)
        # Equal samples need one representative: discrete data may repeat theirs many times.
        unique, inverse = hashes.unique(return_inverse=True)
        self.places = torch.empty(len(unique), dtype=torch.long).scatter(
            0, inverse, torch.arange(len(hashes))
        )

    def found(self, split: Split, hashes: Tensor, places: Tensor) -> Tensor:
        """Tell which samples of a split at these places are near a training sample not equal."""
        whole = self.projected if split is self.train else self._projected(split)
        projected = [part[places] for part in whole]
        known = torch.zeros(len(places), dtype=torch.bool)
        for half, own, train in zip(self.halves, projected, self.projected, strict=True):
            window = SURE * math.sqrt(max(1, int((self.tolerance[half] > 0).sum())))
            self._search(split, hashes, places, own, train[self.places], window, known)
        return known

    def _search(
        self,
        split: Split,
        hashes: Tensor,
        places: Tensor,
        own: Tensor,
        train: Tensor,
        window: float,
        known: Tensor,
    ) -> None:
        first, order = train[:, 0].sort()
        ends = [
            torch.searchsorted(first, own[:, 0].contiguous() + sign * window) for sign in (-1, 1)
        ]
        middle = torch.searchsorted(first, own[:, 0].contiguous())
        low = torch.maximum(ends[0], middle - CANDIDATES // 2)
        high = torch.minimum(ends[1], middle + CANDIDATES // 2)
        active = torch.arange(len(places))
        for offset in range(int((high - low).max())):
            active = active[(low[active] + offset < high[active]) & ~known[active]]
            if not len(active):
                return
            others = order[low[active] + offset]
            near = (own[active, 1] - train[others, 1]).abs() <= window
            pairs = active[near], self.places[others[near]]
            apart = hashes[places[pairs[0]]] != self.known[pairs[1]]
            if apart.any():
                mine, theirs = pairs[0][apart], pairs[1][apart]
                known[mine] = self._close(split.take(places[mine]), self.train.take(theirs))

    def _close(self, held: Batch, train: Batch) -> Tensor:
        apart = (_features(held) - _features(train)).abs() > self.tolerance
        targets = (held.target.double() - train.target.double()).abs() <= self.target_tolerance
        same = targets.reshape(len(targets), -1).all(1)
        return same & (apart.sum(1) <= self.differing)

    def _projected(self, split: Split) -> list[Tensor]:
        # In units of the tolerance; what must be equal needs no scale.
        scaled = self.signs / self.tolerance.where(self.tolerance > 0, 1.0)[:, None]
        columns = torch.zeros(len(scaled), 2 * len(self.halves), dtype=torch.float64)
        for number, half in enumerate(self.halves):
            columns[half, 2 * number : 2 * number + 2] = scaled[half]
        size = max(1, CACHED // len(scaled))
        parts = [_features(batch) @ columns for batch in split.batches(size)]
        return [part.contiguous() for part in torch.cat(parts).split(2, 1)]


def _spaced(count: int, most: int) -> Tensor:
    """Return at most so many places, evenly spaced."""
    places: Tensor = torch.linspace(0, count - 1, min(count, most)).round().long().unique()
    return places


def _features(batch: Batch) -> Tensor:
    """Return all inputs as one row of double-precision numbers per sample."""
    rows = [tensor.detach().cpu().double().flatten(1) for tensor in _rows(batch)]
    return torch.cat(rows, 1)


def _rows(batch: Batch) -> list[Tensor]:
    return [t if t.ndim > 1 else t[:, None] for t in tensors_of(batch.inputs)]


def _floating(batch: Batch) -> Tensor:
    """Return one for each feature that is a floating-point number: integers must be equal."""
    parts = [torch.full((t[0].numel(),), float(t.is_floating_point())) for t in _rows(batch)]
    return torch.cat(parts).double()


def _width(split: Split) -> tuple[int, ...]:
    """Return the number of features of every input and of the target."""
    batch = split.take(torch.arange(1))
    return (*(tensor[0].numel() for tensor in tensors_of(batch.inputs)), batch.target[0].numel())
