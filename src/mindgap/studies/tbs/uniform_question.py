"""How often a sampling that asks about uniform points gets the right answer."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Record,
    Series,
    Study,
    Table,
    Trial,
    generator,
    option,
    proportion_interval,
)
from mindgap.sampling import Box, TaylorSampler
from mindgap.sampling.comparison import SMALLEST, against_uniform, regression_error

# Each with its number of inputs, of which all are between 0 and 1.
FUNCTIONS: Mapping[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "step": (lambda x: torch.tanh(30 * (x[:, :1] - 0.37)), 1),
    "Runge": (lambda x: 1 / (1 + 25 * (2 * x[:, :1] - 1) ** 2), 1),
    "wave": (lambda x: torch.sin(12 * x[:, :1]), 1),
    "slanted step": (lambda x: torch.tanh(12 * (x[:, :1] + x[:, 1:2] - 0.9)), 2),
    "bump": (lambda x: (-((x - 0.3) / 0.12).square().sum(1, keepdim=True)).exp(), 2),
    "flat wave": (lambda x: torch.sin(6 * x[:, :1]) * torch.cos(5 * x[:, 1:2]), 2),
}
ARMS = ("acquisition", "uniform")
JUDGES, TESTS = 8, 1000  # sets of uniform points, and test points, that tell the truth
FIRST_SEED = 1000  # no seed of the calibration
Values = tuple[Tensor, Tensor]
COLUMNS = (
    *("function", "new points", "points", "true ratio", "better, %", "low", "high"),
    *("worse, %", "low, worse", "high, worse"),
)


class UniformQuestion(Study):
    r"""How often "would uniform points have done as well?" is answered, and how often wrongly.

    Formula: $\mathrm{power} = P(\text{better} \mid e(S \cup A) < e(S \cup U))$

    Reading: New points come from the acquisition function, or are uniform themselves. Where they
    are uniform, every answer but "no difference" is an error, of which there may be one in twenty.
    Where they are not, the true ratio tells what is right: the error with them over that with
    uniform points, on many test points and for several sets of uniform points. Below one they are
    worth more. More points make the answer surer.

    Assumes: The question is answered with 1.25 uniform evaluations per new point, and for the
    regression that the command uses. The seeds are not those by which the test was calibrated.

    >>> len(UniformQuestion().trials())
    24
    """

    method = ("T1", "T2")
    cites = ("novello2020variance", "nadeau2003inference")

    seeds: int = option(24, help="samplings of every kind", low=2)
    sizes: tuple[int, ...] = option(
        (16, 40), help="numbers of new points, and of points of the initial design", low=10
    )

    def trials(self) -> Sequence[Trial]:
        """One trial per function, kind of new points and number of points."""
        return [
            Trial(parameters={"function": name, "new": arm, "size": size}, seed=FIRST_SEED)
            for name in FUNCTIONS
            for arm in ARMS
            for size in self.sizes
        ]

    def run(self, trial: Trial) -> Record:
        """Ask the question for every seed, and find out what is true."""
        seeds = range(trial.seed, trial.seed + self.seeds)
        found = [_asked(trial["function"], trial["new"], trial["size"], seed) for seed in seeds]
        return {"words": [word for word, _ in found], "ratios": [ratio for _, ratio in found]}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per trial: the true ratio, and the shares of both answers."""
        rows = tuple(_row(trial, record) for trial, record in records)
        false, total = 0, 0
        for trial, record in records:
            if trial["new"] == "uniform":
                total += len(record["words"])
                false += sum(word != "unclear" for word in record["words"])
        notes: list[str] = []
        if total:
            low, high = _percent(false, total)[1:]
            notes.append(
                f"Where new points are uniform, {false} of {total} answers claim a difference "
                f"({low:.1f} to {high:.1f} %, with 95 % confidence; 5 % are meant)."
            )
        notes.append("The true ratio is the median over seeds; intervals are those of Clopper.")
        return Table(
            title="Would uniform points have done as well?",
            columns=COLUMNS,
            rows=rows,
            notes=tuple(notes),
            charts=tuple(_chart(rows, size) for size in self.sizes),
        )

    def tiny(self) -> Self:
        """Two seeds, and few points."""
        return self.replace(seeds=2, sizes=(10,))


def _asked(name: str, arm: str, size: int, seed: int) -> tuple[str, float]:
    """Return the answer, and the error with the new points over that with uniform ones."""
    function, inputs = FUNCTIONS[name]
    random, box = generator(seed), Box([0.0] * inputs, [1.0] * inputs)

    def uniform(count: int) -> Values:
        points = torch.rand(count, inputs, generator=random, dtype=torch.float64)
        return points, function(points)

    with TaylorSampler(function, box, initial=size, seed=seed) as sampler:
        found = sampler.run(size if arm == "acquisition" else 0)
    initial, chosen = ((found.points[rows], found.values[rows]) for rows in (~found.new, found.new))
    new = chosen if arm == "acquisition" else uniform(size)
    answer = against_uniform(initial, new, uniform(size * 5 // 4), box.bounds, seed)
    others = [uniform(size) for _ in range(JUDGES)]
    return answer.word, _true_ratio(initial, new, others, uniform(TESTS))


def _true_ratio(initial: Values, new: Values, others: Sequence[Values], tests: Values) -> float:
    smallest = SMALLEST * float(tests[1].std())
    ours = math.log(regression_error(initial, new, tests) + smallest)
    theirs = [math.log(regression_error(initial, other, tests) + smallest) for other in others]
    return math.exp(ours - sum(theirs) / len(theirs))


def _row(trial: Trial, record: Record) -> tuple[Any, ...]:
    words, ratios = record["words"], record["ratios"]
    shares = [_percent(words.count(word), len(words)) for word in ("better", "worse")]
    middle = sorted(ratios)[len(ratios) // 2]
    return (trial["function"], trial["new"], trial["size"], middle, *shares[0], *shares[1])


def _percent(count: int, total: int) -> tuple[float, float, float]:
    interval = proportion_interval(count, total)
    return 100 * count / total, 100 * interval.low, 100 * interval.high


def _chart(rows: Sequence[tuple[Any, ...]], size: int) -> Bar:
    chosen = [row for row in rows if row[2] == size]
    return Bar(
        title=f"Answers that new points are worth more, {size} new points",
        y_label="% of samplings",
        series=[
            Series(
                name=f"new points: {arm}",
                x=[row[0] for row in chosen if row[1] == arm],
                y=[row[4] for row in chosen if row[1] == arm],
                low=[row[5] for row in chosen if row[1] == arm],
                high=[row[6] for row in chosen if row[1] == arm],
            )
            for arm in ARMS
        ],
    )
