"""Worlds of simulated races: per-sample errors with the noise that was measured on real nets."""

import dataclasses
import math
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mindgap.training.race.scores import Scores

Kind = Literal["equal", "unequal variances", "heavy tails", "ties", "harmful", "gain", "even gain"]
Rows = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
_CHUNK = 8  # seeds whose common noise is drawn at once
_DIFFERENT = 0.05  # share of the samples on which an arm differs in the world of ties
_FACTORS = (1.0, 2.0, 0.5)  # of the noise of arms with unequal variances


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """The noise of one data set, in units in which a seed has a standard deviation of one.

    Args:
        name: What it imitates.
        validation: Number of validation samples.
        test: Number of test samples.
        error: Rate of 0/1 errors; None for losses that are numbers.
        unit: Standard deviation of an arm's test error over seeds, in units of the error.
        sample: Spread of an arm's effect over samples. No number of seeds averages it away.
        seed: Spread of an arm's effect over seeds that all samples share.
        residual: Spread of what belongs to one seed and one sample.
        common: Share of the residual variance that arms of the same seed have in common.
    """

    name: str
    validation: int
    test: int
    error: float | None
    unit: float
    sample: float
    seed: float
    residual: float
    common: float


# A net errs where the sum of hardness (variance 1), arm and seed passes a threshold. The three
# numbers give digits' seed sd .0031, paired sd 1.18 and test-sample sd .53 (see the test).
DIGITS = World(
    name="digits",
    validation=300,
    test=600,
    error=0.034,
    unit=0.0031,
    sample=0.0751,
    seed=0.0,
    residual=0.1378,
    common=0.6,
)
# A gain has a paired sd of .73 over seeds, .44 of its variance shared by all samples, and a
# test-sample sd of .73. Two arms bring half of each variance. What arms share cancels.
CONCRETE = World(
    name="small test",
    validation=206,
    test=206,
    error=None,
    unit=1.0,
    sample=0.73 * math.sqrt(206 / 2),
    seed=0.73 * math.sqrt(0.44 / 2),
    residual=0.73 * math.sqrt(0.56 * 206 / 2),
    common=0.0,
)


@dataclasses.dataclass(frozen=True)
class Effect:
    """What tells an arm from the recipe as it is.

    Args:
        gain: How much lower its error is on average, in standard deviations of a seed.
        place: Number of the arm, which decides its variance and its ties.
    """

    gain: float = 0.0
    place: int = 0


class Side:
    """Validation or test samples of one race, and the errors of every arm on them.

    Args:
        world: The noise.
        kind: What is special about the arms.
        samples: Number of samples.
        rng: Source of all draws.
    """

    def __init__(self, world: World, kind: Kind, samples: int, rng: np.random.Generator) -> None:
        self._world, self._kind, self._samples, self._rng = world, kind, samples, rng
        self._hardness = self._normal(samples) if world.error is not None else None
        self._root = world.sample * self._normal(samples)
        self._shared = np.empty((0, samples), np.float32)
        self._arms: dict[str, tuple[Rows, Mask | None]] = {}

    def errors(self, name: str, effect: Effect, first: int, last: int) -> list[Scores]:
        """Draw an arm's errors for seeds from first to last.

        Args:
            name: The arm; it keeps its effect on every sample.
            effect: What tells it from the others.
            first: The first seed.
            last: One more than the last.
        """
        world, factor = self._world, self._factor(effect)
        own, mask = self._arm(name, effect, factor)
        noise = factor * self._noise(last - first)
        shared = self._common(first, last) if world.common or mask is not None else None
        if world.common and shared is not None:
            noise *= math.sqrt(1 - world.common)
            noise += factor * math.sqrt(world.common) * shared
        noise += own
        if mask is not None and shared is not None:
            root = self._root + shared if world.error is not None else np.float32(0)
            noise = np.where(mask, noise, root)
        return self._scores(noise, effect, factor)

    def _scores(self, noise: Rows, effect: Effect, factor: float) -> list[Scores]:
        world = self._world
        if world.error is None or self._hardness is None:
            rows = (noise - np.float32(effect.gain)).astype(np.float64)
            return [Scores(row, row) for row in rows]
        spread = math.sqrt(1 + factor**2 * (world.sample**2 + world.residual**2))
        rate = world.error - effect.gain * world.unit
        noise += self._hardness
        noise += np.float32(spread * NormalDist().inv_cdf(rate))
        return [Scores((row > 0).astype(np.float64), row.astype(np.float64)) for row in noise]

    def _arm(self, name: str, effect: Effect, factor: float) -> tuple[Rows, Mask | None]:
        if name not in self._arms:
            heavy = self._kind == "heavy tails"
            draw = self._student(self._samples) if heavy else self._normal(self._samples)
            mask = None
            if self._kind == "ties":
                share = _DIFFERENT if effect.place % 3 else 0.0
                mask = self._rng.random(self._samples, np.float32) < share
            self._arms[name] = (np.float32(factor * self._world.sample) * draw, mask)
        return self._arms[name]

    def _noise(self, seeds: int) -> Rows:
        """Draw what belongs to seeds; wild seeds are wild on all samples."""
        world, heavy = self._world, self._kind == "heavy tails"
        noise = world.residual * self._normal((seeds, self._samples))
        if heavy:
            noise /= np.sqrt(self._rng.chisquare(3, (seeds, 1))).astype(np.float32)
        if world.seed:
            whole = self._student((seeds, 1)) if heavy else self._normal((seeds, 1))
            noise += world.seed * whole
        return noise

    def _common(self, first: int, last: int) -> Rows:
        while len(self._shared) < last:
            more = self._world.residual * self._normal((_CHUNK, self._samples))
            self._shared = np.concatenate([self._shared, more])
        return self._shared[first:last]

    def _factor(self, effect: Effect) -> float:
        unequal = self._kind == "unequal variances"
        return _FACTORS[effect.place % len(_FACTORS)] if unequal else 1.0

    def _normal(self, shape: int | tuple[int, ...]) -> Rows:
        return self._rng.standard_normal(shape, np.float32)

    def _student(self, shape: int | tuple[int, ...]) -> Rows:
        """Draw from Student's distribution with three degrees of freedom, scaled to variance 1."""
        return (self._rng.standard_t(3, shape) / math.sqrt(3)).astype(np.float32)
