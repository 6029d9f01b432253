"""Figures 2 to 5 of Wang et al. 2018: gap and Ψ over batch sizes and learning rates."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import nn

from mindgap.core import (
    Claim,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Subject,
    Table,
    Trial,
    mean_interval,
    option,
    spearman,
)
from mindgap.data.cifar import cifar10
from mindgap.data.dataset import DataSet
from mindgap.data.mnist import mnist
from mindgap.data.splits import stratified_split
from mindgap.measures.curvature.pacgen import Pacgen
from mindgap.training.fit import Loop

LOADERS: Mapping[str, Callable[[], DataSet]] = {"MNIST": mnist, "CIFAR-10": cifar10}
TARGET = {"MNIST": 0.1, "CIFAR-10": 1.0}  # training loss at which settings are compared too
BATCHES, FACTORS = (8, 16, 32, 64, 128), (0.25, 0.5, 1.0, 2.0)
Rows = list[tuple[Trial, Record]]
Sweeps = Mapping[tuple[str, str], tuple[str, float]]  # by data and sweep: what is fixed, and where
SWEEPS = ("batch size", "learning rate")
BUDGETS = {"epochs": "after the same epochs", "loss": "at the same training loss"}
RIVALS = {
    "squared-gradient": "Ψ, squared gradients",
    "gauss-newton": "Ψ, true diagonal",
    "hutchinson": "Ψ, Hutchinson",
    "rho-only": "Ψ, ρ alone",
    "null": "Ψ, Hessian zero",
    "norm": "weight norm",
    "train_loss": "training loss",
}
NOTES = (
    "The paper (Figures 2 to 5, without numbers) reports that gap and Ψ grow with the batch size "
    "and as the learning rate shrinks, with 'the exact same trend'. This claims a rank correlation "
    "of +1 for Ψ with squared gradients.",
    "Cells are Spearman's rank correlations with the gap in the loss over the settings of a sweep: "
    "mean over seeds and 95 % interval. 'ρ alone' sets the diagonal to zero and keeps its "
    "Lipschitz constant. 'Hessian zero' drops both and depends on the weights alone.",
)


class PacgenFigure2(Study):
    r"""Figures 2 to 5 of Wang et al. 2018: gap and Ψ over batch sizes and learning rates.

    Formula: $\mathrm{gap} = L_{test}(w) - L_{train}(w), \qquad \Psi_\kappa(w)$

    Reading: In the paper the gap and Ψ grow together with the batch size, and as the learning rate
    shrinks, after the same number of epochs. A setting with larger or more steps also fits more and
    has larger weights. The table therefore compares the rank correlation of the gap with Ψ with
    three controls: Ψ without its Hessian, the weight norm and the training loss. It does so after
    the same number of epochs and at the same training loss.

    Assumes: The convolutional network of the PyTorch example without dropout, trained with SGD. It
    sees a part of the training data only, so batches are smaller than the paper's. For such a
    network ``gauss-newton`` is the exact diagonal. A part of the training samples gives the
    curvature.

    >>> len(PacgenFigure2().trials())
    80
    """

    method = ("P6", "P9")
    cites = ("wang2018identifying", "keskar2017large")
    reproduces = ("pacgen: Figure 2", "pacgen: Figure 3", "pacgen: Figure 4", "pacgen: Figure 5")

    seeds: int = option(
        5, help="paired seeds; each fixes weights, order and training samples", low=2
    )
    samples: int = option(1000, help="training samples; the paper has 60,000 and 50,000", low=50)
    test_samples: int = option(1000, help="test samples", low=50)
    epochs: int = option(30, help="epochs after which settings are compared", low=1)
    most_epochs: int = option(
        90,
        help="epochs after which a setting that has not reached the training loss stops",
        low=1,
    )
    curvature_samples: int = option(200, help="training samples that give the curvature", low=1)
    probes: int = option(8, help="random directions of Hutchinson's estimate", low=1)
    mnist_rate: float = option(0.1, help="learning rate over batch sizes on MNIST", above=0)
    cifar10_rate: float = option(
        0.05, help="learning rate over batch sizes on CIFAR-10; the paper has 0.01", above=0
    )
    middle: int = option(32, help="batch size over learning rates; the paper has 256", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per seed, data set and setting."""
        return [
            Trial(parameters={"data": data, "batch_size": size, "learning_rate": rate}, seed=seed)
            for seed in range(self.seeds)
            for data in LOADERS
            for size, rate in self._settings(data)
        ]

    def _settings(self, data: str) -> list[tuple[int, float]]:
        """List all batch sizes at one learning rate, then all rates at the middle size."""
        rate = self._rates()[data]
        pairs = [(size, rate) for size in BATCHES] + [(self.middle, rate * f) for f in FACTORS]
        return list(dict.fromkeys(pairs))

    def _rates(self) -> dict[str, float]:
        return {"MNIST": self.mnist_rate, "CIFAR-10": self.cifar10_rate}

    def _sweeps(self) -> Sweeps:
        """Say what a sweep leaves as it is: the learning rate, or the batch size."""
        rates = self._rates()
        return {
            (data, sweep): ("learning_rate", rates[data])
            if sweep == "batch size"
            else ("batch_size", self.middle)
            for data in LOADERS
            for sweep in SWEEPS
        }

    def run(self, trial: Trial) -> Record:
        """Train, and measure during training, at the end and at the common training loss."""
        loop = Loop(self._recipe(trial), [], trial.seed, (), 1)
        wanted, along, near = TARGET[trial["data"]], list[Record](), None
        shown = sorted({1, self.epochs} | {2**k for k in range(8) if 2**k < self.epochs})
        end: Record = {}
        while loop.epoch < self.epochs or (
            loop.epoch < self.most_epochs and not reached(near, wanted)
        ):
            loop.advance()
            if loop.stopped:
                break
            row = loop.history[-1]
            if near is None or distance(row, wanted) < distance(near[0], wanted):
                near = (
                    row,
                    {name: value.clone() for name, value in loop.model.state_dict().items()},
                )
            if loop.epoch in shown:
                along.append({**losses(row), **self._quick(loop, trial)})
            if loop.epoch == self.epochs:
                end = {**losses(row), **self._all(loop, trial)}
        if loop.stopped or near is None:
            return {"stopped": loop.stopped, "along": along}
        loop.model.load_state_dict(near[1])
        equal = {**losses(near[0]), **self._all(loop, trial)}
        return {
            "stopped": "",
            "along": along,
            "epochs": end,
            "loss": equal,
            "reached": reached(near, wanted),
        }

    def _recipe(self, trial: Trial) -> Recipe:
        data = LOADERS[trial["data"]]()
        assert data.test is not None
        (index,) = stratified_split(data.targets, (self.samples,), seed=trial.seed)
        inputs = data.inputs[index]
        return Recipe(
            model=lambda: network(inputs.shape[1], inputs.shape[-1]),
            train=(inputs, data.targets[index]),
            test=(data.test[0][: self.test_samples], data.test[1][: self.test_samples]),
            optimizer="sgd",
            learning_rate=trial["learning_rate"],
            batch_size=trial["batch_size"],
            epochs=self.most_epochs,
        )

    def _quick(self, loop: Loop, trial: Trial) -> Record:
        found = Pacgen().replace(batch_size=trial["batch_size"], draws=1, seed=trial.seed)(
            self._part(loop)
        )
        return {
            "squared-gradient": found.value,
            "null": found.terms["null"],
            "norm": found.terms["weight_norm"],
        }

    def _all(self, loop: Loop, trial: Trial) -> Record:
        part, common = self._part(loop), Pacgen().replace(draws=1, seed=trial.seed)
        squares = common.replace(batch_size=trial["batch_size"])(part)
        newton = common.replace(curvature="gauss-newton")(part)
        random = common.replace(curvature="hutchinson", probes=self.probes)(part)
        return {
            "squared-gradient": squares.value,
            "gauss-newton": newton.value,
            "hutchinson": random.value,
            "rho-only": newton.terms["rho_only"],
            "null": newton.terms["null"],
            "norm": newton.terms["weight_norm"],
            "rho": newton.terms["rho"],
            "capped": newton.terms["capped"],
            "clipped": random.terms["clipped"],
        }

    def _part(self, loop: Loop) -> Subject:
        return Subject(
            loop.model, "cross_entropy", loop.train.subset(torch.arange(self.curvature_samples))
        )

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set, sweep and quantity, and the curves of the figures."""
        good = [(trial, record) for trial, record in records if not record["stopped"]]
        sweeps = self._sweeps()
        stopped = len(records) - len(good)
        return Table(
            title="pacGen, Figures 2 to 5: what ranks the gap over batch sizes and learning rates",
            columns=("data", "sweep", "the gap against", *BUDGETS.values()),
            rows=tuple(
                row for case in sweeps for row in _rows(*case, _chosen(good, sweeps, *case))
            ),
            notes=(
                *NOTES,
                f"The learning rate over batch sizes is {self.mnist_rate:g} on MNIST (paper: 0.1) "
                f"and {self.cifar10_rate:g} on CIFAR-10 (paper: 0.01). The batch size over learning "
                f"rates is {self.middle} (paper: 256).",
                *_facts(good, self.epochs),
                *([f"Diverged and left out: {stopped}."] if stopped else []),
            ),
            claims=_claims(good, sweeps),
            charts=tuple(
                _chart(_chosen(good, sweeps, *case), *case, quantity)
                for case in sweeps
                for quantity in ("gap", "squared-gradient", "null")
            ),
        )

    def tiny(self) -> Self:
        """Use two seeds and very little data."""
        return self.replace(
            seeds=2,
            samples=60,
            test_samples=50,
            epochs=2,
            most_epochs=2,
            curvature_samples=20,
            probes=2,
        )


def network(channels: int, size: int) -> nn.Module:
    """Build the network of PyTorch's MNIST example of 2018, without dropout (21,840 weights).

    Args:
        channels: Channels of the images.
        size: Their height and width.
    """
    left = ((size - 4) // 2 - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(20 * left * left, 50), nn.ReLU(), nn.Linear(50, 10)),
    )


def losses(row: Mapping[str, float]) -> Record:
    """Select the epoch, losses and errors of a row of the history."""
    return {
        name: row[name]
        for name in ("epoch", "train_loss", "test_loss", "train_error", "test_error")
    }


def distance(row: Mapping[str, float], wanted: float) -> float:
    """Return the absolute log ratio of the training loss and the target."""
    return abs(math.log(max(row["train_loss"], 1e-12) / wanted))


def reached(near: tuple[Mapping[str, float], object] | None, wanted: float) -> bool:
    """Tell whether some epoch ended close to the target training loss, or below it."""
    return near is not None and (near[0]["train_loss"] <= 1.1 * wanted)


def _chosen(rows: Rows, sweeps: Sweeps, data: str, sweep: str) -> Rows:
    field, value = sweeps[data, sweep]
    return [
        (trial, record) for trial, record in rows if trial["data"] == data and trial[field] == value
    ]


def _rows(data: str, sweep: str, rows: Rows) -> list[tuple[object, ...]]:
    kept = {
        "epochs": rows,
        "loss": [(trial, record) for trial, record in rows if record["reached"]],
    }
    quantities: dict[str, Any] = {f"the {sweep} itself": lambda trial, _: trial[_field(sweep)]}
    quantities |= {words: lambda _, found, name=name: found[name] for name, words in RIVALS.items()}
    return [
        (data, sweep, words, *(_ranked(kept[budget], budget, of) for budget in BUDGETS))
        for words, of in quantities.items()
    ]


def _field(sweep: str) -> str:
    return sweep.replace(" ", "_")


def _claims(good: Rows, sweeps: Sweeps) -> tuple[Claim, ...]:
    """Judge the paper's claims after the same epochs, each on two data sets."""
    ways = {"batch size": 1, "learning rate": -1}
    own = {
        (data, sweep): (
            _ranks(chosen, "epochs", lambda trial, _, sweep=sweep: trial[_field(sweep)]),
            _ranks(chosen, "epochs", lambda _, found: found["squared-gradient"]),
        )
        for data, sweep in sweeps
        if (chosen := _chosen(good, sweeps, data, sweep))
    }
    told = []
    for sweep, way in ways.items():
        found = [ranks for (_, which), ranks in own.items() if which == sweep]
        words = f"{'with the' if way > 0 else 'as the'} {sweep}{'' if way > 0 else ' shrinks'}"
        grows = sum(_positive([way * rank for rank in setting]) for setting, _ in found)
        follows = sum(_positive(psi) for _, psi in found)
        told.append(Claim.counted(f"The gap grows {words}.", grows, len(found)))
        told.append(Claim.counted(f"Over the {sweep}, Ψ follows the gap.", follows, len(found)))
    return tuple(told) if own else ()


def _positive(ranks: Sequence[float]) -> bool:
    return len(ranks) > 1 and mean_interval(ranks).low > 0


def _ranks(rows: Rows, budget: str, of: Any) -> list[float]:
    """Rank a quantity against the gap over settings, seed by seed."""
    values = []
    for seed in sorted({trial.seed for trial, _ in rows}):
        mine = [(trial, record[budget]) for trial, record in rows if trial.seed == seed]
        gaps = [gap(found) for _, found in mine]
        others = [float(of(trial, found)) for trial, found in mine]
        if len(set(gaps)) > 1 and len(set(others)) > 1:
            values.append(spearman(others, gaps))
    return values


def _ranked(rows: Rows, budget: str, of: Any) -> str:
    values = _ranks(rows, budget, of)
    if not values:
        return "—"
    if len(values) == 1:
        return f"{values[0]:+.2f}"
    spread = mean_interval(values)
    return (
        f"{sum(values) / len(values):+.2f} [{max(spread.low, -1):.2f}, {min(spread.high, 1):.2f}]"
    )


def gap(found: Mapping[str, float]) -> float:
    """Return test loss minus training loss, the paper's definition.

    Args:
        found: Losses of a record.
    """
    return found["test_loss"] - found["train_loss"]


def _facts(good: Rows, epochs: int) -> list[str]:
    notes = []
    for data, wanted in TARGET.items():
        mine = [record for trial, record in good if trial["data"] == data]
        kept = [record["loss"]["train_loss"] for record in mine if record["reached"]]
        ends = [record["epochs"] for record in mine]
        if not kept or not ends:
            continue
        notes.append(
            f"{data}: after {epochs} epochs, training losses range from "
            f"{_range(ends, 'train_loss')}. {len(kept)} of {len(mine)} runs were compared at a "
            f"training loss of about {wanted:g}, at the epoch that ended nearest to it: "
            f"{min(kept):.3g} to {max(kept):.3g}."
        )
        closeness = max(
            abs(e["gauss-newton"] - e["rho-only"]) / abs(e["gauss-newton"]) for e in ends
        )
        notes.append(
            f"{data}: with the paper's γ = ε = 0.1, ρ ranges from {_range(ends, 'rho')}. Ψ with "
            f"the true diagonal and Ψ with ρ alone differ by at most {100 * closeness:.2g} % of Ψ. "
            f"Capped weights: {100 * _mean(ends, 'capped'):.2g} %. Hutchinson entries below zero, "
            f"clipped: {100 * _mean(ends, 'clipped'):.2g} %."
        )
    return notes


def _range(rows: Sequence[Mapping[str, float]], name: str) -> str:
    values = [row[name] for row in rows]
    return f"{min(values):.3g} to {max(values):.3g}"


def _mean(rows: Sequence[Mapping[str, float]], name: str) -> float:
    return math.fsum(row[name] for row in rows) / len(rows)


def _chart(chosen: Rows, data: str, sweep: str, quantity: str) -> Line:
    """Chart one line per setting over the epochs, with the interval over seeds."""
    series = []
    for value in sorted({trial[_field(sweep)] for trial, _ in chosen}):
        runs = [record["along"] for trial, record in chosen if trial[_field(sweep)] == value]
        points = [_point(list(column), quantity) for column in zip(*runs, strict=True)]
        x, y, low, high = (list(column) for column in zip(*points, strict=True))
        series.append(Series(name=f"{sweep} {value:g}", x=x, y=y, low=low, high=high))
    label = "test loss − training loss" if quantity == "gap" else RIVALS[quantity]
    return Line(
        title=f"{data}: {label} by {sweep}, mean and 95 % interval over seeds",
        x_label="epoch",
        y_label=label,
        x_scale="log",
        series=series,
    )


def _point(column: list[Mapping[str, float]], quantity: str) -> tuple[float, float, float, float]:
    values = [gap(found) if quantity == "gap" else found[quantity] for found in column]
    middle = sum(values) / len(values)
    spread = mean_interval(values) if len(values) > 1 else None
    return (
        column[0]["epoch"],
        middle,
        spread.low if spread else middle,
        spread.high if spread else middle,
    )
