"""Figures 2 to 5 of the pacGen paper: gap and Ψ against batch size and learning rate, beside what Ψ must beat."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import torch
from torch import nn

from mindgap.core import Recipe, Record, Study, Subject, Table, Trial, option
from mindgap.data.cifar import cifar10
from mindgap.data.dataset import DataSet
from mindgap.data.mnist import mnist
from mindgap.data.splits import stratified_split
from mindgap.measures.curvature.pacgen import Pacgen
from mindgap.studies.pacgen.figure2_table import table
from mindgap.training.fit import Loop

LOADERS: Mapping[str, Callable[[], DataSet]] = {"MNIST": mnist, "CIFAR-10": cifar10}
RATE = {"MNIST": 0.1, "CIFAR-10": 0.05}
TARGET = {
    "MNIST": 0.1,
    "CIFAR-10": 1.0,
}  # training loss at which settings are compared a second time
BATCHES, FACTORS, MIDDLE = (8, 16, 32, 64, 128), (0.25, 0.5, 1.0, 2.0), 32


class PacgenFigure2(Study):
    r"""Figures 2 to 5 of the pacGen paper: gap and Ψ over batch sizes and learning rates, on MNIST and CIFAR-10.

    Formula: $\mathrm{gap} = L_{test}(w) - L_{train}(w), \qquad \Psi_\kappa(w)$

    Reading: The paper sees the gap and Ψ grow together with the batch size, and as the learning
    rate shrinks, after the same number of epochs. A setting that takes larger or more steps also
    fits more and has larger weights. So the rank correlation of the gap with Ψ stands beside those
    with Ψ without its Hessian, with the weight norm and with the training loss, after the same
    number of epochs and again at the same training loss.

    Assumes: The convolutional network of the PyTorch example without dropout, SGD, and a part of
    the training data, so batches are smaller than the paper's. ``gauss-newton`` is the exact
    diagonal of such a network. Curvature is taken on a part of the training samples.

    >>> len(PacgenFigure2().trials())
    80
    """

    method = ("P6", "P9")
    cites = ("wang2018identifying", "keskar2017large")

    seeds: int = option(5, help="paired seeds: weights, order and training samples", low=2)
    samples: int = option(1000, help="training samples; the paper has 60,000 and 50,000", low=50)
    test_samples: int = option(1000, help="test samples", low=50)
    epochs: int = option(30, help="passes at which settings are compared", low=1)
    most_epochs: int = option(
        90,
        help="passes after which a setting that has not reached the training loss is left",
        low=1,
    )
    curvature_samples: int = option(200, help="training samples that curvature is taken on", low=1)
    probes: int = option(8, help="random directions of Hutchinson's estimate", low=1)

    def trials(self) -> Sequence[Trial]:
        """Every setting on every data set, seed by seed."""
        return [
            Trial(parameters={"data": data, "batch_size": size, "learning_rate": rate}, seed=seed)
            for seed in range(self.seeds)
            for data in LOADERS
            for size, rate in settings(data)
        ]

    def run(self, trial: Trial) -> Record:
        """Train, and measure along the way, at the end and at the common training loss."""
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
        """Rank correlations by data set, sweep and budget, and the curves of the figures."""
        return table(records, self.epochs, RATE, TARGET, MIDDLE)

    def tiny(self) -> Self:
        """Two seeds, hardly any data."""
        return self.replace(
            seeds=2,
            samples=60,
            test_samples=50,
            epochs=2,
            most_epochs=2,
            curvature_samples=20,
            probes=2,
        )


def settings(data: str) -> list[tuple[int, float]]:
    """All batch sizes at the data's own learning rate, then other rates at the middle batch size."""
    rate = RATE[data]
    return [
        *((size, rate) for size in BATCHES),
        *((MIDDLE, rate * factor) for factor in FACTORS if factor != 1),
    ]


def network(channels: int, size: int) -> nn.Module:
    """The network of the PyTorch example for MNIST as it was in 2018, without its dropout; 21,840 weights there."""
    left = ((size - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(20 * left * left, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def losses(row: Mapping[str, float]) -> Record:
    """What the history says, under the names of a record."""
    return {
        name: row[name]
        for name in ("epoch", "train_loss", "test_loss", "train_error", "test_error")
    }


def distance(row: Mapping[str, float], wanted: float) -> float:
    """How far the training loss is from the wanted one, as a ratio."""
    return abs(math.log(max(row["train_loss"], 1e-12) / wanted))


def reached(near: tuple[Mapping[str, float], object] | None, wanted: float) -> bool:
    """Whether some epoch ended close to the wanted training loss, or below it."""
    return near is not None and (near[0]["train_loss"] <= 1.1 * wanted)
