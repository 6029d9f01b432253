"""Linear regions of trained networks against depth, at a fixed number of parameters."""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch

from mindgap.core import (
    Chart,
    Claim,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    holm,
    mean_interval,
    option,
    paired,
)
from mindgap.nets.mlp import MLP
from mindgap.ops.regions.bounds import montufar, serra
from mindgap.ops.regions.count import SliceRegions, regions_on_slice
from mindgap.remedies import Annealing
from mindgap.studies.expressivity.boundaries import BOUNDARIES, samples
from mindgap.training.ensemble import ensemble

TEST = 4_000
LEVEL, ORDER = 0.05, 10  # of corrected tests; "of the order of" means within this factor
STATES = {"before": "before training", "after": "after training"}
NOTES = (
    "Published claims: the largest number of regions grows exponentially with depth (Montúfar et al., "
    "2014, a lower bound on the largest; Serra et al., 2018, an upper bound). Hanin and Rolnick "
    "(2019): at initialization and after training, the number in a plane is of the order of "
    "(number of units)² / 2, whatever the depth.",
    "Regions are activation patterns on the square from −1 to 1, counted exactly. Bounds count the "
    "whole plane, so a network may have more regions outside of the square.",
    "The width of every depth is the largest that the number of parameters allows. All depths share "
    "data and seeds; p-values compare with one hidden layer and are corrected after Holm.",
)


class TrainedRegions(Study):
    r"""Count linear regions against depth at a fixed number of parameters.

    Formula: $\prod_{l<L} \lfloor n_l / 2 \rfloor^2 \sum_{j=0}^{2} \binom{n_L}{j} \le \max_w
    \#(w) \le \text{Serra}(n_1, \ldots, n_L)$

    Reading: With the same parameters, a deeper network has fewer units and may have many more
    regions. What a network could have is far above what trained networks have.

    Assumes: Two inputs, ReLU and equal widths in all hidden layers.

    >>> [width_of(depth, 500) for depth in (1, 2, 4)]
    [99, 19, 11]
    """

    method = ("E2",)
    cites = ("montufar2014number", "serra2018bounding", "hanin2019deep")

    depths: tuple[int, ...] = option((1, 2, 3, 4, 6, 8), help="numbers of hidden layers", low=1)
    parameters_each: int = option(500, help="most parameters of a network", low=40)
    boundary: str = option("waves", help="boundary of the classes", choices=tuple(BOUNDARIES))
    seeds: int = option(10, help="draws of data and initial weights", low=2)
    size: int = option(500, help="training samples", low=10)
    epochs: int = option(400, help="passes over the training samples", low=1)
    learning_rate: float = option(0.01, help="first learning rate of Adam", above=0)

    def trials(self) -> Sequence[Trial]:
        """Every depth with every seed."""
        return [
            Trial(parameters={"depth": depth}, seed=seed)
            for depth in self.depths
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Count the regions of one network before and after training."""
        widths = (2, *[width_of(trial["depth"], self.parameters_each)] * trial["depth"], 2)
        recipe = Recipe(
            model=lambda: MLP(widths),
            train=samples(self.boundary, self.size, trial.seed),
            test=samples(self.boundary, TEST, 1_000 + trial.seed),
            epochs=self.epochs,
            batch_size=50,
            learning_rate=self.learning_rate,
        )
        (member,) = ensemble(recipe, [trial.seed], remedies=[Annealing()], keep_history=False)
        subject = member.subject()
        return {
            "before": _regions(recipe.build(trial.seed)).count,
            "after": _regions(member.model).count,
            "train_error": subject.mean_error("train"),
            "test_error": subject.mean_error("test"),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per depth."""
        runs: dict[int, list[Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["depth"], []).append(record)
        return Table(
            title=f"Linear regions against depth, at most {self.parameters_each} parameters",
            columns=(
                *("hidden layers", "width", "parameters", "Montúfar: the most is at least"),
                *("Serra: at most", "units² / 2", "before training", "after training"),
                *("low", "high", "p against one layer", "training error", "test error"),
            ),
            rows=tuple(self._row(depth, runs, p) for depth, p in _compared(runs).items()),
            notes=(*NOTES, *self._judged(runs)),
            charts=(self._chart(runs), _errors(runs)),
            claims=self._claims(runs),
        )

    def _claims(self, runs: dict[int, list[Record]]) -> tuple[Claim, ...]:
        """Judge the bound, what is said of trained networks, and what is hoped of depth."""
        serra_holds = [self._within(depth, record) for depth, own in runs.items() for record in own]
        shares = [
            _mean(own, state) / (sum(self._widths(depth)) ** 2 / 2)
            for depth, own in runs.items()
            for state in STATES
        ]
        first, *others = runs
        compared = _compared(runs)
        more = [
            (compared[depth] or 0.0) < LEVEL
            and _mean(runs[depth], "after") > _mean(runs[first], "after")
            for depth in others
        ]
        held = Claim.counted(
            "No network has more regions than its upper bound.", sum(serra_holds), len(serra_holds)
        )
        near = sum(1 / ORDER <= share <= ORDER for share in shares)
        size = Claim.counted(
            f"Networks have half the square of their units, within a factor of {ORDER}.",
            near,
            len(shares),
        )
        deep = Claim.counted(
            "With equal parameters, deeper networks have more regions.", sum(more), len(more)
        )
        return held, size, *((deep,) if others else ())

    def _within(self, depth: int, record: Record) -> bool:
        return bool(max(record["before"], record["after"]) <= serra(self._widths(depth), 2))

    def _row(self, depth: int, runs: dict[int, list[Record]], p: float | None) -> tuple[Any, ...]:
        widths, own = self._widths(depth), runs[depth]
        ends = mean_interval([record["after"] for record in own])
        return (
            *(depth, widths[0], parameters_of(depth, widths[0])),
            *(montufar(widths, 2), serra(widths, 2), sum(widths) ** 2 / 2),
            *(_mean(own, "before"), _mean(own, "after"), ends.low, ends.high, p),
            *(_mean(own, "train_error"), _mean(own, "test_error")),
        )

    def _widths(self, depth: int) -> list[int]:
        return [width_of(depth, self.parameters_each)] * depth

    def _judged(self, runs: dict[int, list[Record]]) -> list[str]:
        within = [self._within(depth, record) for depth, own in runs.items() for record in own]
        told = [f"{sum(within)} of {len(within)} networks are within Serra's bound."]
        deep = max(runs)
        if deep > min(runs):
            share = _mean(runs[deep], "after") / montufar(self._widths(deep), 2)
            told.append(
                f"With {deep} layers, trained networks have {_mean(runs[deep], 'after'):.0f} regions "
                f"on average, {100 * share:.2g} % of what Montúfar's network has; with {min(runs)}, "
                f"{_mean(runs[min(runs)], 'after'):.0f}."
            )
        return told

    def _chart(self, runs: dict[int, list[Record]]) -> Chart:
        depths = list(runs)
        bounds: dict[str, list[float]] = {
            "Serra, upper bound": [serra(self._widths(d), 2) for d in depths],
            "Montúfar, lower bound on the most": [montufar(self._widths(d), 2) for d in depths],
            "units² / 2": [sum(self._widths(d)) ** 2 / 2 for d in depths],
        }
        return Line(
            title="Linear regions against depth at fixed parameters",
            x_label="hidden layers",
            y_label="linear regions",
            y_scale="log",
            series=[
                *(_series(runs, state, words) for state, words in STATES.items()),
                *(Series(name=name, x=depths, y=y, mode="lines") for name, y in bounds.items()),
            ],
            caption="Bands: 95 % intervals over seeds.",
        )

    def tiny(self) -> Self:
        """Two depths, few parameters and one epoch."""
        return self.replace(depths=(1, 2), parameters_each=60, seeds=2, size=40, epochs=1)


def parameters_of(depth: int, width: int) -> int:
    """Count the parameters of a network with two inputs, two outputs and equal hidden layers.

    >>> parameters_of(1, 20), parameters_of(2, 10)
    (102, 162)
    """
    return 3 * width + (depth - 1) * width * (width + 1) + 2 * width + 2


def width_of(depth: int, most: int) -> int:
    """Find the largest width whose network has at most so many parameters.

    Args:
        depth: Number of hidden layers.
        most: The largest number of parameters.
    """
    width = 2
    while parameters_of(depth, width + 1) <= most:
        width += 1
    return width


def _regions(model: Any) -> SliceRegions:
    return regions_on_slice(model, torch.zeros(2), torch.eye(2)[0], torch.eye(2)[1])


def _mean(runs: Sequence[Record], key: str) -> float:
    return math.fsum(run[key] for run in runs) / len(runs)


def _compared(runs: dict[int, list[Record]]) -> dict[int, float | None]:
    """Compare the trained networks of every depth with the shallowest, paired by seed."""
    first, *others = runs
    counts = {depth: [record["after"] for record in own] for depth, own in runs.items()}
    raw = [paired(counts[depth], counts[first]).p_value for depth in others]
    return {first: None, **dict(zip(others, holm(raw), strict=True))}


def _series(runs: dict[int, list[Record]], key: str, name: str) -> Series:
    ends = [mean_interval([record[key] for record in own]) for own in runs.values()]
    return Series(
        name=name,
        x=list(runs),
        y=[_mean(own, key) for own in runs.values()],
        low=[max(e.low, 1.0 if key in STATES else 0.0) for e in ends],
        high=[e.high for e in ends],
    )


def _errors(runs: dict[int, list[Record]]) -> Chart:
    return Line(
        title="Errors of the same networks",
        x_label="hidden layers",
        y_label="share of wrong answers",
        percent=True,
        from_zero=True,
        series=[
            _series(runs, "train_error", "training error"),
            _series(runs, "test_error", "test error"),
        ],
    )
