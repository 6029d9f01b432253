"""Samples that two splits share: equal values in any precision, and near copies."""

import dataclasses
import itertools
import math
from collections.abc import Iterator

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
SURE = 5.0  # a sum of random signs exceeds 5 standard deviations in 1 of 130,000 cases at most
GRIDS, CELL = 3, 32.0  # projections that are divided into cells, and their width in windows
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
    in every feature. Its projections on random directions are close for near copies, so only
    samples with close projections, which a grid finds, are compared feature by feature.
    """

    def __init__(self, train: Split, hashes: Tensor) -> None:
        self.train, self.known = train, hashes
        self.batch_size = max(1, NUMBERS // sum(_width(train)))
        batch = train.take(_spaced(len(train), min(SPREAD_SAMPLES, self.batch_size)))
        usual = TOLERANCE * _features(batch).std(0, correction=0)
        self.tolerance = usual * _floating(batch)
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
        # Directions of unequal entries tell discrete data apart, whose sums of signs would be equal.
        shape = width, 1 + GRIDS
        signs = torch.randint(0, 2, shape, generator=source).double() * 2 - 1
        self.directions = signs * (1 + torch.rand(shape, generator=source, dtype=torch.float64)) / 2
        self.scale = usual.where(usual > 0, 1.0)
        # Equal samples need one representative: discrete data may repeat theirs many times.
        unique, inverse = hashes.unique(return_inverse=True)
        self.places = torch.empty(len(unique), dtype=torch.long).scatter(
            0, inverse, torch.arange(len(hashes))
        )
        self.projected = self._projected(train)
        self.grids = [
            _Grid(own[self.places], self._window(half))
            for half, own in zip(self.halves, self.projected, strict=True)
        ]

    def found(self, split: Split, hashes: Tensor, places: Tensor) -> Tensor:
        """Tell which samples of a split at these places are near a training sample not equal."""
        whole = self.projected if split is self.train else self._projected(split)
        known = torch.zeros(len(places), dtype=torch.bool)
        for own, grid in zip(whole, self.grids, strict=True):
            for rows, others in grid.pairs(own[places], known):
                theirs = self.places[others]
                apart = hashes[places[rows]] != self.known[theirs]
                pairs = torch.stack([rows[apart], theirs[apart]])
                for mine, other in pairs.split(self.batch_size, 1) if apart.any() else ():
                    close = self._close(split.take(places[mine]), self.train.take(other))
                    known[mine[close]] = True
        return known

    def _window(self, half: Tensor) -> Tensor:
        """Return how far apart the projections of near copies are at most."""
        sizes = self.directions[half].abs() * (self.tolerance[half, None] > 0)
        window: Tensor = torch.minimum(sizes.sum(0), SURE * sizes.square().sum(0).sqrt())
        return window.clamp_min(1.0)  # so that rounding is no distance

    def _close(self, held: Batch, train: Batch) -> Tensor:
        apart = (_features(held) - _features(train)).abs() > self.tolerance
        targets = (held.target.double() - train.target.double()).abs() <= self.target_tolerance
        same = targets.reshape(len(targets), -1).all(1)
        return same & (apart.sum(1) <= self.differing)

    def _projected(self, split: Split) -> list[Tensor]:
        # In units of the tolerance, or of what it would be for a feature that must be equal.
        scaled, wide = self.directions / self.scale[:, None], 1 + GRIDS
        columns = torch.zeros(len(scaled), wide * len(self.halves), dtype=torch.float64)
        for number, half in enumerate(self.halves):
            columns[half, wide * number : wide * (number + 1)] = scaled[half]
        size = max(1, CACHED // len(scaled))
        parts = [_features(batch) @ columns for batch in split.batches(size)]
        return list(torch.cat(parts).split(wide, 1))


class _Grid:
    """Points in cells of all coordinates but the first, by which a cell is sorted.

    Args:
        points: One point per row.
        window: For each coordinate, how far apart two points are at most.
    """

    def __init__(self, points: Tensor, window: Tensor) -> None:
        self.points, self.window = points, window
        first = points[:, 0]
        self.low = float(first.min())
        # The key of a point is its cell, then its first coordinate in 31 bits.
        self.unit = max(float(first.max()) - self.low, 1.0) / 2**31
        self.cells, cell = _mixed(self._cell(points)).unique(return_inverse=True)
        self.keys, self.order = (cell * 2**32 + self._place(first)).sort()

    def pairs(self, points: Tensor, known: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield points, of which ``known`` ones need no more, and others within the window.

        Args:
            points: The points whose neighbors are searched.
            known: Which of them need no more; it may change between two pairs.
        """
        ends = [self._cell(points + sign * self.window) for sign in (-1, 1)]
        for corner in itertools.product((False, True), repeat=GRIDS):
            upper = torch.tensor(corner)
            # Where both ends of the window are in one cell, that cell is searched once.
            wanted = ((ends[0] != ends[1]) | ~upper).all(1) & ~known
            active = wanted.nonzero().flatten()
            cell = _mixed(torch.where(upper, ends[1][active], ends[0][active]))
            at = torch.searchsorted(self.cells, cell).clamp_max(len(self.cells) - 1)
            there = self.cells[at] == cell
            yield from self._within(points, active[there], at[there] * 2**32, known)

    def _within(
        self, points: Tensor, active: Tensor, cell: Tensor, known: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        first = points[active, 0]
        low, middle, high = (
            torch.searchsorted(
                self.keys, cell + self._place(first + sign * self.window[0]), right=sign > 0
            )
            for sign in (-1, 0, 1)
        )
        low = torch.maximum(low, middle - CANDIDATES // 2)
        high = torch.minimum(high, middle + CANDIDATES // 2)
        for offset in itertools.count():
            left = (low + offset < high) & ~known[active]
            active, low, high = active[left], low[left], high[left]
            if not len(active):
                return
            others = self.order[low + offset]
            near = ((points[active] - self.points[others]).abs() <= self.window).all(1)
            if near.any():
                yield active[near], others[near]

    def _cell(self, points: Tensor) -> Tensor:
        return (points[:, 1:] / (CELL * self.window[1:])).floor().long()

    def _place(self, first: Tensor) -> Tensor:
        return ((first - self.low) / self.unit).floor().long().clamp(0, 2**31)


def _mixed(cells: Tensor) -> Tensor:
    """Hash cells; two that collide only cost time."""
    odd = torch.tensor([0x9E3779B97F4A7C1, 0xC2B2AE3D27D4EB5, 0x165667B19E3779F])
    mixed: Tensor = (cells * odd).sum(1)
    return mixed ^ (mixed >> 29)


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
