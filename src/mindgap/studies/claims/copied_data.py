"""What copies of the training data cost: full-batch gradient descent against SGD."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from mindgap.core import Chart, Line, Record, Series, Study, Table, Trial, option, paired
from mindgap.data import digits
from mindgap.nets.mlp import MLP
from mindgap.studies.conditioning.steps import Problem

METHODS = ("full batch", "SGD")
NOTES = (
    "Published claim (lecture slides): doubling the training data by copies doubles the training time "
    "of full-batch gradient descent and does not change that of SGD.",
    "Cost is the number of gradients of single samples until the mean loss of the last ten steps is at "
    "the target. Ratios are geometric means over paired seeds, each with digits, initial weights and "
    "batches of its own, with 95 % intervals.",
)
Costs = Mapping[tuple[str, int], Mapping[int, Record]]


class CopiedData(Study):
    r"""Count the gradients that training takes to a loss when every sample appears several times.

    Formula: $C = B \cdot \min \{ t : \frac{1}{10} \sum_{s=t-9}^{t} L_s \le \ell \}$ with $B = c n$
    for the full batch of $c$ copies of $n$ samples, and a fixed $B$ for SGD

    Reading: A ratio of two for two copies means that copies are paid for without being of use. Copies
    are the extreme of redundant samples, which all large data sets have.

    Assumes: An MLP on the 8×8 digits, a fixed learning rate per method.

    >>> len(CopiedData(seeds=2).trials())
    12
    """

    method = ("E7",)
    cites = ("bottou2008tradeoffs",)
    reproduces = ("expressivity: Copied data",)
    expected: ClassVar[Mapping[str, float]] = {
        **{f"full batch, {copies}": float(copies) for copies in (2, 4)},
        **{f"SGD, {copies}": 1.0 for copies in (2, 4)},
    }

    seeds: int = option(8, help="draws of digits, initial weights and batches", low=2)
    samples: int = option(400, help="digits before copying", low=20, high=1000)
    copies: tuple[int, ...] = option((1, 2, 4), help="how often every digit appears", low=1)
    batch_size: int = option(32, help="samples per step of SGD", low=1)
    target: float = option(0.1, help="the training loss to reach", above=0)
    full_rate: float = option(0.5, help="learning rate of full-batch descent", above=0)
    rate: float = option(0.1, help="learning rate of SGD", above=0)
    most_steps: int = option(3000, help="the most steps", low=10)

    def trials(self) -> Sequence[Trial]:
        """Every method and number of copies with every seed."""
        return [
            Trial(parameters={"method": method, "copies": copies}, seed=seed)
            for method in METHODS
            for copies in self.copies
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train one network to the target."""
        drawn, full = digits().subset(self.samples, trial.seed), trial["method"] == "full batch"
        inputs, labels = (
            part.repeat(trial["copies"], *[1] * (part.ndim - 1)) for part in drawn.train
        )
        size = len(labels) if full else self.batch_size
        posed = Problem(
            model=lambda: MLP((64, 64, 10)),
            train=(inputs, labels),
            batch_size=size,
            target=self.target,
            limit=self.most_steps,
        )
        found = posed.learn("SGD", self.full_rate if full else self.rate, trial.seed)
        reached = found.steps < self.most_steps
        return {"steps": found.steps, "gradients": size * found.steps, "reached": reached}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per method and number of copies."""
        costs: dict[tuple[str, int], dict[int, Record]] = {}
        for trial, record in records:
            costs.setdefault((trial["method"], trial["copies"]), {})[trial.seed] = record
        rows = tuple(self._row(key, costs) for key in costs)
        return Table(
            title=f"Gradients to a training loss of {self.target:g}, by copies of the data",
            columns=(
                "method",
                "copies",
                "steps",
                "gradients",
                "published",
                "ratio",
                "low",
                "high",
            ),
            rows=rows,
            notes=(*NOTES, *_judged(rows), *_late(records)),
            charts=(_chart(rows),),
        )

    def _row(self, key: tuple[str, int], costs: Costs) -> tuple[Any, ...]:
        steps, gradients = (
            math.fsum(record[name] for record in costs[key].values()) / len(costs[key])
            for name in ("steps", "gradients")
        )
        published = self.expected.get(f"{key[0]}, {key[1]}")
        return (*key, steps, gradients, published, *_ratio(costs, key))

    def tiny(self) -> Self:
        """Two seeds, few digits and a target that is reached at once."""
        return self.replace(seeds=2, samples=40, copies=(1, 2), target=2.2, most_steps=40)


def _ratio(costs: Costs, key: tuple[str, int]) -> tuple[float | None, ...]:
    """Divide the cost by that without copies, seed by seed; return the ratio and its interval."""
    one = costs.get((key[0], 1), {})
    shared = sorted(set(one) & set(costs[key]))
    if key[1] == 1 or len(shared) < 2:
        return None, None, None
    found = paired(
        *([math.log(row[seed]["gradients"]) for seed in shared] for row in (costs[key], one))
    )
    ends = found.difference, found.interval.low, found.interval.high
    return tuple(math.exp(end) for end in ends)


def _judged(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    told = []
    for method in METHODS:
        own = [row for row in rows if row[0] == method and row[5] is not None]
        parts = [
            f"{row[1]} copies cost {row[5]:.2f} [{row[6]:.2f}, {row[7]:.2f}] times as much"
            for row in own
        ]
        told += [f"{method}: {'; '.join(parts)}."] if parts else []
    return told


def _late(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    late = sum(not record["reached"] for _, record in records)
    return [f"Runs that do not reach the target: {late} of {len(records)}."]


def _chart(rows: Sequence[tuple[Any, ...]]) -> Chart:
    return Line(
        title="Cost of training over the number of copies",
        x_label="copies of every sample",
        y_label="gradients of samples",
        x_scale="log",
        y_scale="log",
        series=[
            Series(
                name=method,
                x=[row[1] for row in rows if row[0] == method],
                y=[row[3] for row in rows if row[0] == method],
            )
            for method in METHODS
        ],
    )
