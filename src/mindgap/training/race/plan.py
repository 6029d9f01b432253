"""Plan: how many trainings go into search and confirmation; fixed before any of them."""

import dataclasses
import math
import re
from typing import NamedTuple

from mindgap.core import InputError

LEAST = 40  # trainings below which no gain of a usual size could be found
MOST = 600  # beyond it, test samples and not trainings limit what can be found
PILOT = 3  # trainings of the baseline that tell how long one takes
RUNGS = 3
FEWEST_SEEDS = 10  # of a confirmation, where the budget allows them
RATIO = 6  # of the parts of test samples and of seeds in the variance of a gain
RETUNE_SHARE = 0.2  # of the search, before a best cell on the edge extends the grid
SAFETY = 0.9  # of the time, that trainings may fill
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a number of trainings buys.

    A training of the untouched recipe is the unit. An arm that takes twice as long is charged two.

    Args:
        trainings: The whole budget.
        remedies: How many remedies and fixes enter the race.
        strengths: How many strengths of each remedy.
        finalists: How many arms are confirmed at most, next to the two controls.
        retune_seeds: Seeds per cell of the retuned baseline.

    >>> make_plan(200)
    Plan(trainings=200, remedies=6, strengths=3, finalists=2, retune_seeds=3)
    """

    trainings: int
    remedies: int
    strengths: int
    finalists: int
    retune_seeds: int

    @property
    def search(self) -> float:
        """Trainings for the search."""
        return self.trainings / 2

    @property
    def confirmation(self) -> float:
        """Trainings for the confirmation."""
        return self.trainings - self.search


def make_plan(trainings: int) -> Plan:
    """Split a budget; fewer candidates buy more power than a larger budget does.

    Args:
        trainings: Number of trainings, in units of the untouched recipe.
    """
    if trainings < LEAST:
        raise InputError(
            f"The budget must allow at least {LEAST} trainings, got {trainings}. Allow more time, or "
            "train a smaller model on fewer samples."
        )
    sizes = (5, 2) if trainings < 60 else (6, 3) if trainings < 300 else (10, 3)
    return Plan(
        trainings=trainings,
        remedies=sizes[0],
        strengths=sizes[1],
        finalists=1 if trainings < 100 else 2 if trainings <= 400 else 3,
        # Five cells, of which one trains twice as long.
        retune_seeds=max(1, min(8, round(RETUNE_SHARE * trainings / 2 / 6))),
    )


def affordable(budget: float, seconds: float, workers: int) -> int:
    """Count the trainings that fit into a time.

    Args:
        budget: Seconds on the clock.
        seconds: Seconds of one training.
        workers: Trainings at a time.

    >>> affordable(180.0, 1.5, 2)
    216
    """
    return min(MOST, int(SAFETY * budget * workers / max(seconds, 1e-9)))


def as_seconds(budget: str | float) -> float:
    """Read a time such as ``"30m"``, ``"1h"``, ``"90s"`` or a number of seconds.

    >>> as_seconds("30m"), as_seconds("1.5h"), as_seconds(20)
    (1800.0, 5400.0, 20.0)
    """
    if isinstance(budget, int | float) and not isinstance(budget, bool):
        found = float(budget)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", str(budget))
        if match is None:
            raise InputError(
                f"budget must be a time such as '30m', '2h' or '90s', got {budget!r}. Write a "
                "number and a unit."
            )
        found = float(match[1]) * _UNITS[match[2]]
    if not 0 < found < math.inf:
        raise InputError(f"budget must be a time above zero, got {budget!r}. Allow more time.")
    return found


def first_seeds(budget: float, cost: float) -> int:
    """Choose the seeds of the first rung: a third of the budget, but two seeds where they fit.

    Args:
        budget: Trainings left for all rungs.
        cost: What one seed of all arms costs.
    """
    two = 2 if 2 * cost <= 0.6 * budget else 1
    return max(two, round(budget / (RUNGS * cost)))


class Noise(NamedTuple):
    """The parts of the variance of a gain.

    Args:
        seed_part: Between seeds, shared by all samples.
        sample_part: Between samples, shared by all seeds.
        residual: Of one seed and one sample.
    """

    seed_part: float
    sample_part: float
    residual: float

    def of_a_mean(self, seeds: int, samples: int) -> float:
        """Return the variance of a mean over so many seeds and samples.

        >>> Noise(2.0, 3.0, 6.0).of_a_mean(2, 3)
        3.0
        """
        return (self.seed_part + self.residual / samples) / seeds + self.sample_part / samples


def confirmation_seeds(noise: Noise | None, samples: int, share: int) -> int:
    """Choose the number of fresh seeds on validation data alone.

    The variance of a gain has a part of the seeds, which shrinks with their number, and a part of
    the test samples, which does not. Seeds that make the first a sixth of the second are enough.

    Args:
        noise: Of a finalist's gain over the control, on validation data.
        samples: Number of test samples.
        share: Seeds that the budget allows.
    """
    if noise is None or noise.sample_part == 0:
        return max(share, 2)
    seeds = noise.seed_part + noise.residual / samples
    useful = math.ceil(RATIO * seeds / (noise.sample_part / samples))
    return max(2, min(share, max(useful, FEWEST_SEEDS)))
