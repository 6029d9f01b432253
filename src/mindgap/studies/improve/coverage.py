"""How often the interval of improve holds the true gain, on real nets."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mindgap.core import (
    Record,
    Study,
    Table,
    Trial,
    mean_interval,
    option,
    proportion_interval,
    two_way,
)
from mindgap.core.chart.numbers import round_down, round_up
from mindgap.data import load
from mindgap.remedies import Annealing, LabelSmoothing, WeightAveraging, WeightDecay
from mindgap.studies.improve.recipes import Sizes, plain_recipe
from mindgap.training.race.arm import Arm, baseline
from mindgap.training.race.of_recipe import RecipeTrainer

# Data, training samples, and test samples of a draw.
SETS = (
    *(("digits", 600, 300), ("uci-concrete", 400, 206)),
    *(("uci-wine", 800, 321), ("mnist", 1000, 600)),
)
COLUMNS = (
    *("data", "arm", "seeds", "samples", "true gain", "coverage, %", "interval of coverage"),
    *("coverage over seeds alone, %", "no difference, %"),
)
_BLOCK = 32  # seeds that are trained at once


class IntervalCoverage(Study):
    r"""How often the 95 % interval of improve holds the true gain, on real nets.

    Formula: $P(|\bar d - \delta| \le t_{.975,\nu} \sqrt V) \ge 0.95$

    Reading: Every arm is trained with many seeds and answers many test samples. All of them together
    are the population, whose mean gain over the recipe as given is known. Each draw takes some of
    the seeds and some of the samples, with replacement, and computes the interval of improve over
    seeds and samples. The last column has the interval of a t-test over the seeds of the same draw,
    which takes the samples for granted. Draws in which no prediction differs are counted apart:
    improve says "no difference" there, and claims no interval.

    Assumes: The population is these seeds and samples: it has their spread, ties and outliers, but
    no others. Networks have one hidden layer.

    >>> len(IntervalCoverage().trials())
    4
    """

    method = ("E5",)
    cites = ("holm1979simple",)

    pool: int = option(64, help="seeds of every arm in the population", low=4)
    test_samples: int = option(10_000, help="largest number of samples in the population", low=20)
    draws: int = option(1000, help="draws per arm", low=2)
    seeds: int = option(20, help="seeds of a draw", low=2)
    hidden: int = option(32, help="hidden units of the network", low=1)
    epochs: int = option(20, help="epochs of the recipe as given", low=1)
    sets: int = option(
        len(SETS), help="number of data sets, in the order of the table", low=1, high=len(SETS)
    )

    def trials(self) -> Sequence[Trial]:
        """One population per data set."""
        return [
            Trial(parameters={"data": name, "train": train, "samples": samples})
            for name, train, samples in SETS[: self.sets]
        ]

    def run(self, trial: Trial) -> Record:
        """Train the population, then draw from it."""
        sizes = Sizes(trial["train"], self.test_samples, self.hidden, self.epochs)
        trainer = RecipeTrainer(plain_recipe(load(trial["data"]), sizes, trial.seed))
        given = self._errors(trainer, baseline())
        samples = min(trial["samples"], given.shape[1])
        rows = {}
        for arm in _arms(trainer):
            gains = given - self._errors(trainer, arm)
            rows[arm.name] = self._covered(gains, samples, trial.seed)
        return {"samples": samples, "population": list(given.shape), "arms": rows}

    def _errors(self, trainer: RecipeTrainer, arm: Arm) -> NDArray[np.float64]:
        blocks = [range(k, min(k + _BLOCK, self.pool)) for k in range(0, self.pool, _BLOCK)]
        answers = [row for block in blocks for row in trainer.answers(arm, block)]
        return np.stack([trainer.errors(row) for row in answers])

    def _covered(self, gains: NDArray[np.float64], samples: int, seed: int) -> dict[str, Any]:
        """Count how often both intervals hold the mean of all gains."""
        rng, true = np.random.default_rng(seed), float(gains.mean())
        both = alone = same = 0
        for _ in range(self.draws):
            rows = rng.integers(0, gains.shape[0], self.seeds)
            columns = rng.integers(0, gains.shape[1], samples)
            table = gains[np.ix_(rows, columns)]
            if not table.any():
                same += 1
                continue
            both += _holds(two_way(table).interval, true)
            alone += _holds(mean_interval(table.mean(1)), true)
        return {"true": true, "both": both, "alone": alone, "same": same}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set and arm."""
        rows = tuple(
            _row(trial["data"], name, self.seeds, record["samples"], self.draws, counts)
            for trial, record in records
            for name, counts in record["arms"].items()
        )
        worst = min(rows, key=lambda row: row[5])
        return Table(
            title="Coverage of the 95 % interval of improve on real nets",
            columns=COLUMNS,
            rows=rows,
            notes=(
                f"The worst coverage is {worst[5]:g} % ({worst[0]}, {worst[1]}), in {self.draws:,} "
                f"draws; the mean is {math.fsum(row[5] for row in rows) / len(rows):.1f} %. Over "
                f"seeds alone the worst is {min(row[7] for row in rows):g} %.",
                "Populations: "
                + "; ".join(
                    "{}, {} seeds and {:,} samples".format(trial["data"], *record["population"])
                    for trial, record in records
                )
                + ".",
                "Intervals of coverage are 95 % Clopper–Pearson intervals, rounded outwards.",
            ),
        )

    def tiny(self) -> Self:
        """Draw from a few nets on the digits that come with the package."""
        return self.replace(sets=1, pool=8, test_samples=60, draws=20, seeds=4, hidden=4, epochs=1)


def _arms(trainer: RecipeTrainer) -> list[Arm]:
    rate = trainer.recipe.learning_rate
    remedies = [Annealing(peak=4.0), WeightAveraging(), WeightDecay()]
    if trainer.task == "classification":
        remedies = [LabelSmoothing(), *remedies]
    return [
        Arm(name="learning rate ×3", group="rate", settings={"learning_rate": 3 * rate}),
        *(
            Arm(name=remedy.name.replace("-", " "), group=remedy.name, remedies=(remedy,))
            for remedy in remedies
        ),
    ]


def _holds(interval: Any, value: float) -> bool:
    return bool(interval.low <= value <= interval.high)


def _row(
    data: str, arm: str, seeds: int, samples: int, draws: int, counts: dict[str, Any]
) -> tuple[Any, ...]:
    told = max(draws - counts["same"], 1)
    found = proportion_interval(counts["both"], told)
    low, high = round_down(100 * found.low, 1), round_up(100 * found.high, 1)
    return (
        *(data, arm, seeds, samples, counts["true"]),
        *(round(100 * counts["both"] / told, 2), f"[{low:.1f}, {high:.1f}]"),
        *(round(100 * counts["alone"] / told, 2), round(100 * counts["same"] / draws, 2)),
    )
