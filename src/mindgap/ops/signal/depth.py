"""How the gradient grows or shrinks on its way from the output of a network to its input."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Literal

from mindgap.core import implements

State = Literal["healthy", "vanishing", "exploding"]

# In 110 healthy networks of eleven kinds (studies/diagnoses/healthy.py, seeds 0 to 9, a reading every
# 20 steps), at least 0.023 of the gradient was left at all layers and 0.007 at all steps of sequences,
# and it grew at most 53 and 1,600 times, in single readings. Verdicts take medians of five.
LOST, BLOWN = 1e-4, 1e4
ONE_LAYER = 0.5  # share of the whole change, from which on a single layer is to blame
HALF = 0.5  # of the mean change of other layers, below which layers have no part in it
FEWEST = 3  # signals from which a rate can be fitted


@dataclasses.dataclass(frozen=True)
class Profile:
    """The norm of the gradient along layers, or along the steps of a sequence.

    Args:
        signals: The norms, from the first layer to the last.
    """

    signals: tuple[float, ...]

    @property
    def reach(self) -> tuple[float, ...]:
        """What is left at every layer of the largest signal at this or a later one."""
        return tuple(
            signal / max(self.signals[place:]) if signal else 0.0
            for place, signal in enumerate(self.signals)
        )

    @property
    def growth(self) -> tuple[float, ...]:
        """How many times every layer's signal is the smallest at this or a later one.

        >>> Profile((1.0, 1e-6, 1.0)).growth, Profile((1e6, 1e3, 1.0)).growth
        ((1.0, 1.0, 1.0), (1000000.0, 1000.0, 1.0))
        """
        path = [
            math.inf if aside else signal
            for signal, aside in zip(self.signals, self.aside, strict=True)
        ]
        return tuple(
            max(1.0, signal / min(value for value in (*path[place:], math.inf) if value))
            for place, signal in enumerate(self.signals)
        )

    @property
    def aside(self) -> tuple[bool, ...]:
        """Which layers the gradient passes by: it is lost there, and there again at earlier ones.

        Queries and keys of an attention that is still even get hardly any, and values get it all.
        """
        return tuple(
            signal < LOST * min(max(self.signals[:place], default=0), max(self.signals[place:]))
            for place, signal in enumerate(self.signals)
        )

    @property
    def least(self) -> float:
        """The smallest share that is left, of layers that the gradient does not pass by.

        >>> Profile((1.0, 1e-6, 1.0)).least, Profile((1e-6, 1e-3, 1.0)).least
        (1.0, 1e-06)
        """
        return min(r for r, aside in zip(self.reach, self.aside, strict=True) if not aside)

    @property
    def most(self) -> float:
        """How many times the gradient has grown where it is largest."""
        return max(self.growth)

    @property
    def rate(self) -> float | None:
        """The factor per layer."""
        return gradient_rate(self.signals)

    @property
    def states(self) -> tuple[State, ...]:
        """What is to be said of every layer."""
        return tuple(
            "healthy" if aside else state_of(reach, growth)
            for reach, growth, aside in zip(self.reach, self.growth, self.aside, strict=True)
        )

    def start(self, state: State) -> int | None:
        """Return the place nearest to the output at which the gradient is in this state."""
        places = [place for place, found in enumerate(self.states) if found == state]
        return max(places, default=None)

    def culprit(self, state: State) -> int | None:
        """Return the layer that makes most of the change, or None where many have a part in it.

        On its way from the outputs of this layer to those of the layer before, the gradient passes
        this layer's weights and the activation in between.
        """
        changes = self._changes(state)
        whole = sum(change for change in changes if change > 0)
        place = max(range(len(changes)), key=lambda k: changes[k], default=None)
        if place is None or changes[place] <= ONE_LAYER * whole:
            return None
        return place + 1

    def origin(self, state: State) -> int | None:
        """Return the layer from which on the gradient changes on its way back, or None if it is fine.

        From the place where most has changed to the output, the changes from layer to layer are
        split in two by least squares. If those next to the output are on average less than half of
        the others, the change begins at the split, otherwise at the last layer. Where a limit is
        passed depends on the limit, and moves with every step; where the change begins does not.

        >>> Profile((1e8, 1e6, 1e4, 1e2, 1.0, 1.0, 1.0)).origin("exploding")
        4
        """
        if self.start(state) is None:
            return None
        changes = self._changes(state)
        totals = [*itertools.accumulate(reversed(changes), initial=0.0)][::-1]
        first = max(range(len(totals)), key=totals.__getitem__)
        found = _split(changes[first:])
        return len(changes) if found is None else first + found

    def _changes(self, state: State) -> list[float]:
        """Return by how much the gradient vanishes, or explodes, before every layer but the first.

        Layers that the gradient passes by change nothing.
        """
        sign, sizes = 1 if state == "vanishing" else -1, list[float]()
        for signal, aside in zip(reversed(self.signals), reversed(self.aside), strict=True):
            size = sign * math.log(max(signal, 1e-300))
            sizes.append(sizes[-1] if aside and sizes else size)
        return [before - after for before, after in itertools.pairwise(sizes)][::-1]


def _split(changes: Sequence[float]) -> int | None:
    """Return how many changes come before a clear drop, or None where there is none."""
    best, place = 0.0, None
    for k in range(1, len(changes)):
        parts = changes[:k], changes[k:]
        large, small = (sum(part) / len(part) for part in parts)
        gain = (large - small) ** 2 * k * (len(changes) - k)
        if small < HALF * large and gain > best:
            best, place = gain, k
    return place


@implements("S1", cites=("pascanu2013difficulty",))
def gradient_rate(signals: Sequence[float]) -> float | None:
    r"""Fit the factor by which the gradient changes per layer, from the output to the input.

    Formula: $\lVert \delta_l \rVert \approx a \, c^{L - l}$

    Reading: Below one the gradient vanishes with depth, above one it explodes. At 0.5, a thousandth
    is left after ten layers. It is None if less than three layers have a gradient.

    Assumes: Norms of the gradient by the outputs of layers, or by the steps of a sequence.

    Args:
        signals: The norms, from the first layer to the last.

    >>> print(f"{gradient_rate([0.125, 0.25, 0.5, 1.0]):.3f}")
    0.500
    """
    pairs = [(k, math.log(signal)) for k, signal in enumerate(signals) if 0 < signal < math.inf]
    if len(pairs) < FEWEST:
        return None
    middle = math.fsum(place for place, _ in pairs) / len(pairs)
    slope = math.fsum((place - middle) * size for place, size in pairs)
    return math.exp(-slope / math.fsum((place - middle) ** 2 for place, _ in pairs))


def state_of(reach: float, growth: float) -> State:
    """Judge a layer by the share of the gradient that is left there, and by how much it has grown."""
    if reach < LOST:
        return "vanishing"
    return "exploding" if growth > BLOWN else "healthy"
