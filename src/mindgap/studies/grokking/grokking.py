"""Grokking on tables of modular arithmetic: when networks generalize, and what delays it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import nn

from mindgap.core import (
    Bar,
    Chart,
    Claim,
    Heatmap,
    Line,
    Mark,
    Record,
    Series,
    Study,
    Table,
    Trial,
    option,
)
from mindgap.data.dataset import DataSet
from mindgap.data.modular import modular_arithmetic
from mindgap.data.store import cache_folder
from mindgap.nets.transformer import Transformer
from mindgap.studies.grokking.run import Pairs, Training, passed

LEVEL, MUCH = 0.95, 10
SIGNS = {"addition": "+", "subtraction": "-", "multiplication": "*", "division": "/"}
# Every arm changes one thing of the first.
ARMS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "no weight decay": {"weight_decay": 0.0},
    "weight decay 0.3": {"weight_decay": 0.3},
    "30 % of the table": {"fraction": 0.3},
    "70 % of the table": {"fraction": 0.7},
    "division": {"operation": "division"},
    "transformer": {"net": "transformer"},
}
GROKS = {
    "default": f"A perceptron generalizes at least {MUCH} times later than it fits.",
    "division": "On division it does so too.",
    "transformer": "A small transformer does so too.",
}
NOTES = (
    "Published claim (Power et al., 2022): on small tables of arithmetic, networks reach perfect "
    "training accuracy early and generalize much later; weight decay and a larger part of the table "
    "shorten the wait.",
    f"Steps are those at which accuracy first exceeds {100 * LEVEL:g} %, known to 5 %; medians over seeds. "
    "A dash means that most runs did not get there; 'delay' is test over training.",
)


class Grokking(Study):
    r"""Training and held-out accuracy on tables of modular arithmetic, over very long training.

    Formula: $a \circ b \equiv c \pmod p, \quad \mathrm{delay} = t_{test} / t_{train}$

    Reading: The delay compares the steps at which both accuracies first exceed 95 %. A network
    first learns its part of the table by heart: training accuracy is perfect and the held-out cells
    are guessed. With weight decay its norm then shrinks, and at some point it answers the held-out
    cells too. Without decay it may never do so.

    Assumes: Full-batch AdamW. The default is a perceptron with one hidden layer that sees both
    numbers one-hot; the transformer has one layer. The paper's tables and networks are larger.

    >>> len(Grokking(seeds=2).trials())
    14
    """

    method = ("S9",)
    cites = ("power2022grokking",)
    reproduces = ("stability: Grokking",)

    seeds: int = option(3, help="splits of the table and initial weights", low=1)
    modulus: int = option(47, help="modulus p; a prime", low=5)
    fraction: float = option(0.5, help="share of the table to train on", above=0, below=1)
    operation: str = option("addition", help="operation of the table", choices=tuple(SIGNS))
    net: str = option("perceptron", help="network", choices=("perceptron", "transformer"))
    width: int = option(200, help="hidden units of the perceptron", low=1)
    steps: int = option(5000, help="steps of full-batch AdamW", low=10)
    learning_rate: float = option(1e-2, help="learning rate of the perceptron", above=0)
    weight_decay: float = option(1.0, help="decoupled weight decay", low=0)
    arms: str = option("all", help="'all' arms, or 'default' alone", choices=("all", "default"))

    def trials(self) -> Sequence[Trial]:
        """Every arm with every seed."""
        names = list(ARMS) if self.arms == "all" else ["default"]
        return [
            Trial(parameters={"arm": name}, seed=seed)
            for name in names
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train one arm; a killed run resumes from its last checkpoint in the cache folder."""
        own = self.replace(**ARMS[trial["arm"]])
        data = own.table(trial.seed)
        name = f"{self.digest}-{'-'.join(trial['arm'].split())}-{trial.seed}.pt"
        curves = Training(
            model=lambda: own.network(data),
            data=data,
            steps=own.steps,
            # A transformer of this width does not survive the perceptron's rate.
            learning_rate=own.learning_rate * (0.1 if own.net == "transformer" else 1.0),
            weight_decay=own.weight_decay,
            seed=trial.seed,
            file=cache_folder() / "grokking" / name.replace("%", "percent"),
        ).curves()
        return {
            **{f"{which} passes": passed(curves, which, LEVEL) for which in ("train", "test")},
            **curves,
        }

    def table(self, seed: int) -> DataSet:
        """Return the table, split into equations to train on and held-out ones."""
        return modular_arithmetic(self._modulus, SIGNS[self.operation], self.fraction, seed)

    @property
    def _modulus(self) -> int:
        """A transformer gets a smaller table, because a step of it is fifty times as expensive."""
        return self.modulus if self.net == "perceptron" else min(self.modulus, 31)

    def network(self, data: DataSet) -> nn.Module:
        """Make the network for a table."""
        if self.net == "perceptron":
            return Pairs(self._modulus, self.width)
        vocabulary = int(data.facts["vocabulary"])
        return Transformer(vocabulary, self._modulus, 4, width=64, heads=4, layers=1)

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per arm."""
        runs: dict[str, list[Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["arm"], []).append(record)
        return Table(
            title=f"Grokking: arithmetic modulo {self.modulus}",
            columns=(
                *("arm", "runs", "runs that generalize", "training step", "test step", "delay"),
                *("test accuracy at the end", "norm at the end", "λ_max at the end"),
            ),
            rows=tuple(_row(name, own) for name, own in runs.items()),
            notes=(*NOTES, *_judged(runs)),
            charts=self._charts(runs),
            claims=_claims(runs),
        )

    def _charts(self, runs: Mapping[str, Sequence[Record]]) -> tuple[Chart, ...]:
        first = next(iter(runs))
        delays = {
            name: delay
            for name, own in runs.items()
            if (delay := _median([_delay(record) for record in own])) is not None
        }
        bars = [
            Bar.of(
                delays,
                title="Steps to 95 % on held-out cells, over steps to 95 % on the others",
            )
        ]
        return (
            _accuracies(first, runs[first]),
            _sharpness(runs),
            *(bars if delays else ()),
            _cells(self.table(0)),
        )

    def tiny(self) -> Self:
        """One short run of the default."""
        return self.replace(seeds=1, modulus=7, width=8, steps=30)


def _delay(record: Record) -> float | None:
    ends = record["train passes"], record["test passes"]
    return None if None in ends else ends[1] / ends[0]


def _median(values: Sequence[float | None]) -> float | None:
    """Return the middle value, where runs that never got there are the longest."""
    ordered = sorted(math.inf if value is None else value for value in values)
    middle = ordered[len(ordered) // 2]
    return None if math.isinf(middle) else middle


def _row(name: str, own: Sequence[Record]) -> tuple[object, ...]:
    there = [record for record in own if record["test passes"] is not None]
    ends = {
        which: math.fsum(record[which][-1] for record in own) / len(own)
        for which in ("test", "norm", "sharp")
    }
    return (
        *(name, len(own), len(there)),
        *(_median([record[f"{which} passes"] for record in own]) for which in ("train", "test")),
        *(_median([_delay(record) for record in own]), ends["test"], ends["norm"], ends["sharp"]),
    )


def _judged(runs: Mapping[str, Sequence[Record]]) -> list[str]:
    name, own = next(iter(runs.items()))
    late = [delay for record in own if (delay := _delay(record)) is not None]
    told = [
        f"{name.capitalize()}: {len(late)} of {len(own)} runs generalize"
        + (f", {min(late):.0f} to {max(late):.0f} times later than they fit." if late else ".")
    ]
    arms = [arm for arm in runs if arm != name]
    never = [arm for arm in arms if _row(arm, runs[arm])[2] == 0]
    if never:
        told.append(f"No run generalizes within its steps: {', '.join(never)}.")
    return told


def _claims(runs: Mapping[str, Sequence[Record]]) -> tuple[Claim, ...]:
    told = [
        Claim.shown(text, all((_delay(record) or 0.0) >= MUCH for record in runs[arm]))
        for arm, text in GROKS.items()
        if arm in runs
    ]
    pairs = {
        "Weight decay shortens the wait.": ("default", "no weight decay"),
        "More weight decay shortens it further.": ("default", "weight decay 0.3"),
        "A larger part of the table shortens the wait.": ("default", "30 % of the table"),
        "A still larger part shortens it further.": ("70 % of the table", "default"),
    }
    told += [
        Claim.shown(text, _waits(runs[sooner], max) < _waits(runs[later], min))
        for text, (sooner, later) in pairs.items()
        if {sooner, later} <= runs.keys()
    ]
    return tuple(told)


def _waits(own: Sequence[Record], which: Callable[[list[float]], float]) -> float:
    """Return an extreme step of generalization; a run that never gets there waits for ever."""
    steps = [record["test passes"] for record in own]
    return which([math.inf if step is None else float(step) for step in steps])


def _accuracies(name: str, own: Sequence[Record]) -> Chart:
    def series(which: str, words: str) -> Series:
        values = torch.tensor([record[which] for record in own], dtype=torch.float64)
        return Series(
            name=words,
            x=own[0]["step"],
            y=values.mean(0).tolist(),
            low=values.amin(0).tolist(),
            high=values.amax(0).tolist(),
            mode="lines",
        )

    norm = torch.tensor([record["norm"] for record in own], dtype=torch.float64).mean(0)
    return Line(
        title=f"Accuracy over training ({name}; the bands are all runs)",
        x_label="step",
        y_label="accuracy",
        x_scale="log",
        percent=True,
        from_zero=True,
        series=[series("train", "training cells"), series("test", "held-out cells")],
        right=[Series(name="norm of the weights", x=own[0]["step"], y=norm.tolist(), mode="lines")],
        right_label="norm",
        marks=[
            Mark(name=f"{words} {100 * LEVEL:g} %", x=float(place))
            for words, which in (("training", "train"), ("held-out", "test"))
            if (place := _median([record[f"{which} passes"] for record in own])) is not None
        ],
    )


def _sharpness(runs: Mapping[str, Sequence[Record]]) -> Chart:
    return Line(
        title="Largest eigenvalue of the Hessian along the run (first seed)",
        x_label="step",
        y_label="λ_max of the training loss",
        x_scale="log",
        y_scale="log",
        series=[
            Series(
                name=name,
                x=own[0]["sharp_step"],
                y=[value if value > 0 else None for value in own[0]["sharp"]],
                mode="lines",
            )
            for name, own in runs.items()
        ],
    )


def _cells(data: DataSet) -> Chart:
    """The operation table; held-out cells are empty."""
    modulus = int(data.facts["modulus"])
    cells: list[list[float | None]] = [[None] * modulus for _ in range(modulus)]
    for (first, _, second, _), answer in zip(*(part.tolist() for part in data.train), strict=True):
        cells[first][second] = float(answer)
    return Heatmap(
        title="The table as a network sees it: held-out cells are empty (first seed)",
        x_label="b",
        y_label="a",
        x=list(range(modulus)),
        y=list(range(modulus)),
        z=cells,
        z_label="a ∘ b",
    )
