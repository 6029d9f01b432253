"""Error by epoch of a residual network with and without DARC1."""

import functools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from mindgap.core import (
    Claim,
    Line,
    Recipe,
    Record,
    Remedy,
    Series,
    Study,
    Table,
    Trial,
    mean_interval,
    option,
)
from mindgap.data.cifar import cifar10
from mindgap.nets.resnet import ResNet20
from mindgap.remedies.augmentation.random_flips import RandomFlips
from mindgap.remedies.penalties.logit_penalty import LogitPenalty
from mindgap.studies.darc.problems import ratio
from mindgap.studies.perturbed.arms import parts_of, trained

PLAIN = "plain"
ARMS: dict[str, tuple[Remedy, ...]] = {
    PLAIN: (),
    "DARC1, λ = 0.01": (LogitPenalty(factor=0.01),),
    "DARC1, λ = 0.1": (LogitPenalty(factor=0.1),),
    "mean |logit|, λ = 0.1": (LogitPenalty(factor=0.1, form="mean"),),
}
SUBSTITUTE = (
    "A substitute: the paper trains ResNet-50 on the 1.28 million images of ILSVRC 2012 and shows "
    "the error by epoch in a figure. Here it is ResNet-20 on a subset of CIFAR-10 at half its "
    "resolution, with random flips, in a few minutes on one core."
)
NOTES = (
    SUBSTITUTE,
    "Every seed has its own images, of which 10 % are held out; the held-out error is to choose λ. "
    "SGD with momentum 0.9, rate 0.1 with cosine decay, weight decay 0.0001, batch size 50.",
    "Intervals are over seeds: of the mean error by Student, of the ratio by a paired bootstrap.",
)


class DARCByEpoch(Study):
    r"""Error by epoch of ResNet-20 with and without DARC1: a small substitute for ILSVRC.

    Formula: $\mathrm{err}(w_e), \; e = 1, \dots, E, \qquad \ell + \lambda \max_k \frac{1}{n} \sum_i
    |h_k(x_i)|$

    Reading: The paper shows that DARC1 does not hurt a large network on many classes, with slightly
    lower errors late in training. The mean size of the logits is the control without a maximum.

    Assumes: Few images and epochs. What holds here need not hold for ResNet-50 on ILSVRC.

    >>> len(DARCByEpoch().trials())
    20
    """

    method = ("K7", "K9")
    cites = ("kawaguchi2017generalization",)
    reproduces = ("darc: DARC1 on ILSVRC 2012",)

    seeds: int = option(5, help="number of paired runs, each with its own images", low=2)
    samples: int = option(1_500, help="images, of which a tenth is held out", low=40)
    test_samples: int = option(1_000, help="images of the official test part", low=10, high=10_000)
    epochs: int = option(6, help="passes over the training images", low=1)
    width: int = option(16, help="channels of the first stage; 16 is ResNet-20", low=1)

    def trials(self) -> Sequence[Trial]:
        """Every arm with every seed."""
        return [
            Trial(parameters={"arm": arm}, seed=seed) for seed in range(self.seeds) for arm in ARMS
        ]

    def run(self, trial: Trial) -> Record:
        """Train one arm and record its accuracy by epoch."""
        held = self.samples // 10
        parts = parts_of(cifar10, (self.samples - held, held, self.test_samples), trial.seed, 2)
        recipe = Recipe(
            model=functools.partial(_network, self.width),
            train=parts["train"],
            optimizer="sgd",
            momentum=0.9,
            learning_rate=0.1,
            weight_decay=1e-4,
            schedule=functools.partial(
                torch.optim.lr_scheduler.CosineAnnealingLR, T_max=self.epochs
            ),
            epochs=self.epochs,
            batch_size=50,
        )
        remedies = (RandomFlips(), *ARMS[trial["arm"]])
        found: Record = trained(recipe, remedies, trial.seed, parts, 1, self.test_samples // 4)
        return found

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per arm, and the curves."""
        runs: dict[str, list[Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["arm"], []).append(record)
        whole = {arm: found for arm, found in runs.items() if len(found) == len(runs[PLAIN])}
        return Table(
            title=f"DARC1 by epoch: test error of ResNet-20 on {self.samples:,} images of CIFAR-10",
            columns=(
                *("arm", "held-out error", "test error", "low", "high", "lowest by epoch"),
                *("ratio", "ratio low", "ratio high", "training error"),
            ),
            rows=tuple(_row(arm, found, whole[PLAIN]) for arm, found in whole.items()),
            notes=NOTES,
            charts=(_chart(whole),),
            claims=_claims(whole),
        )

    def tiny(self) -> Self:
        """Two seeds and one epoch on forty images."""
        return self.replace(seeds=2, samples=40, test_samples=10, epochs=1, width=2)


def _network(width: int) -> nn.Module:
    """Build the network with channels last, the fastest memory format on a CPU."""
    net = ResNet20(width=width)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def _errors(runs: Sequence[Record], part: str) -> list[float]:
    return [1 - record["final"][part] / 100 for record in runs]


def _curves(runs: Sequence[Record]) -> Any:
    return 1 - np.asarray([record["curves"]["test"] for record in runs]) / 100


def _row(arm: str, runs: Sequence[Record], plain: Sequence[Record]) -> tuple[Any, ...]:
    held, test, train = (_errors(runs, part) for part in ("validation", "test", "train"))
    interval, (value, spread) = mean_interval(test), ratio(test, _errors(plain, "test"))
    lowest = float(_curves(runs).mean(0).min())
    return (
        *(arm, float(np.mean(held)), float(np.mean(test)), interval.low, interval.high, lowest),
        *(value, spread.low, spread.high, float(np.mean(train))),
    )


def _claims(runs: dict[str, list[Record]]) -> tuple[Claim, ...]:
    arms = [arm for arm in runs if arm.startswith("DARC1")]
    if not arms or len(runs[PLAIN]) < 2:
        return ()
    chosen = min(arms, key=lambda arm: float(np.mean(_errors(runs[arm], "validation"))))
    _, spread = ratio(_errors(runs[chosen], "test"), _errors(runs[PLAIN], "test"))
    return (
        Claim.shown(
            "At the end DARC1 has a lower error, λ chosen on held-out data.", spread.high < 1
        ),
    )


def _chart(runs: dict[str, list[Record]]) -> Line:
    series = []
    for arm, found in runs.items():
        curves = _curves(found)
        spans = [mean_interval(column) for column in curves.T]
        y, low, high = curves.mean(0), [s.low for s in spans], [s.high for s in spans]
        x = found[0]["epochs"]
        series.append(Series(name=arm, x=x, y=y.tolist(), low=low, high=high))
    return Line(
        title="Test error by epoch, mean and 95 % interval over seeds",
        x_label="epoch",
        y_label="test error",
        percent=True,
        series=series,
    )
