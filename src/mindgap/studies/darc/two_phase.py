"""Two-phase training against plain training, over the share of the data in phase 1."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from torch import Tensor, nn

from mindgap.core import Claim, Line, Record, Series, Study, Table, Trial, holm, option, paired
from mindgap.measures.basic.gate_flips import GateFlips
from mindgap.nets.lenet import LeNet5
from mindgap.ops.models.phases import gates_of
from mindgap.remedies.schedules.two_phase import TwoPhase
from mindgap.studies.darc.problems import PROBLEMS, error, ratio, recipe_of
from mindgap.studies.perturbed.arms import Parts
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted
from mindgap.training.vectorized.engine import Weighted

ALPHAS = (0.05, 0.1, 0.2, 0.5, 0.8)
DATA = ("MNIST", "CIFAR-10")
SMALL = 0.1  # the α of the slides' worked example
NOTES = (
    "The paper shows the ratio over α in a figure without numbers, for all images and larger "
    "networks, and concludes that a small α achieves competitive performance. A ratio above one "
    "means that freezing the gates costs accuracy.",
    "Both arms take equally many steps and visit every sample equally often. Phase 1 has α of the "
    "samples and of the epochs, one epoch at least; phase 2 has the rest of both, and sees no sample "
    "of phase 1.",
    "'Phase 1' is the test error of the network that decides the gates, before phase 2. 'Free gates' "
    "is the share of gates that the final weights would have flipped on the training images.",
    "MNIST is learned by a perceptron with one hidden layer, CIFAR-10 at half its resolution by "
    "LeNet-5 with ReLU and max-pool, both by Adam with the rate 0.003. Subsets are the same for all "
    "seeds, so intervals cover initial weights, batches and the choice of phase 1.",
)


class TwoPhaseRatio(Study):
    r"""Test error of two-phase training relative to plain training, over α.

    Formula: $\frac{\mathrm{err}(w_2, \sigma(\cdot, w_1))}{\mathrm{err}(w)} \;\text{over}\; \alpha,
    \;\text{the share of the samples in phase 1}$

    Reading: With few samples in phase 1 the gates are worse than plain training's; with many, few
    are left to train the weights on. The control has the same number of steps.

    Assumes: The subset, networks and epochs given.

    >>> len(TwoPhaseRatio().trials())
    72
    """

    method = ("K5", "K9")
    cites = ("kawaguchi2017generalization",)
    reproduces = ("darc: Two-phase training",)

    seeds: int = option(6, help="number of paired seeds", low=2)
    samples: int = option(1_000, help="images to train on", low=20)
    test_samples: int = option(5_000, help="images of the official test part", low=10, high=10_000)
    epochs: int = option(20, help="passes over the training images in all", low=2)
    width: int = option(128, help="hidden units of the perceptron", low=1)

    def trials(self) -> Sequence[Trial]:
        """Every data set, plain or at one α, with every seed."""
        return [
            Trial(parameters={"data": data, "alpha": alpha}, seed=seed)
            for data in DATA
            for alpha in (1.0, *ALPHAS)
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train once; at α = 1 all samples are in phase 1, which is plain training."""
        parts = PROBLEMS[trial["data"]].parts((self.samples, 10, self.test_samples))
        recipe = recipe_of(parts, self.width, epochs=self.epochs, learning_rate=3e-3)
        if trial["data"] == "CIFAR-10":
            recipe = recipe.replace(model=_convolutional(parts["train"][0]))
        remedy = TwoPhase(share=1 - trial["alpha"])
        fitted = fit(recipe, [remedy], seed=trial.seed, evaluate_every=0)
        test = error(fitted.model, parts["test"])
        return {"test": test, **(_phases(fitted, parts) if remedy.on else {})}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set and α."""
        runs: dict[str, dict[float, list[Record]]] = {}
        for trial, record in records:
            runs.setdefault(trial["data"], {}).setdefault(trial["alpha"], []).append(record)
        rows = [
            _row(data, alpha, found[alpha], found[1.0])
            for data, found in runs.items()
            for alpha in found
            if alpha < 1 and len(found[alpha]) == len(found[1.0]) > 1
        ]
        corrected = holm([row[-1] for row in rows]) if rows else []
        columns = (
            *("data", "α", "plain error", "two-phase error", "ratio", "low", "high"),
            *("accuracy ratio", "phase 1", "free gates", "p (Holm)"),
        )
        return Table(
            title=f"Two-phase training: test error relative to plain training, {self.seeds} seeds",
            columns=columns,
            rows=tuple((*row[:-1], round(p, 4)) for row, p in zip(rows, corrected, strict=True)),
            notes=NOTES,
            charts=(_chart(rows),),
            claims=_claims(rows, corrected),
        )

    def tiny(self) -> Self:
        """Two seeds and two epochs on forty images."""
        return self.replace(seeds=2, samples=40, test_samples=20, epochs=2, width=4)


def _convolutional(images: Tensor) -> Callable[[], nn.Module]:
    channels, size = images.shape[1], images.shape[2]
    return lambda: LeNet5(channels=channels, image_size=size)


def _phases(fitted: Fitted, parts: Parts) -> dict[str, float]:
    """The error of the network of phase 1, and the gates that the final weights would flip."""
    gated = gates_of(fitted.model)
    with gated.released():
        first = error(Weighted(fitted.model, gated.first()), parts["test"])
    return {"phase_1": first, "flips": float(GateFlips(since="phase 1")(fitted.subject()))}


def _row(
    data: str, alpha: float, runs: Sequence[Record], plain: Sequence[Record]
) -> tuple[Any, ...]:
    errors, control = ([record["test"] for record in group] for group in (runs, plain))
    value, interval = ratio(errors, control)
    means = float(np.mean(control)), float(np.mean(errors))
    more = (float(np.mean([record[name] for record in runs])) for name in ("phase_1", "flips"))
    return (
        *(data, alpha, *means, value, interval.low, interval.high),
        *((1 - means[1]) / max(1 - means[0], 1e-12), *more, paired(errors, control).p_value),
    )


def _claims(rows: Sequence[tuple[Any, ...]], corrected: Sequence[float]) -> tuple[Claim, ...]:
    worse = [
        row[4] > 1 and p < 0.05 for row, p in zip(rows, corrected, strict=True) if row[1] == SMALL
    ]
    text = (
        f"A small α is competitive: at α = {SMALL:g} the error is not above that of plain training."
    )
    # That it is not above cannot be shown, only that it is not seen to be.
    return (Claim(text, "no" if all(worse) else "direction"),) if worse else ()


def _chart(rows: Sequence[tuple[Any, ...]]) -> Line:
    series = []
    for data in DATA:
        chosen = [row for row in rows if row[0] == data]
        if chosen:
            x, y, low, high = ([row[place] for row in chosen] for place in (1, 4, 5, 6))
            series.append(Series(name=data, x=x, y=y, low=low, high=high))
    return Line(
        title="Error ratio of two-phase training, mean and 95 % interval over seeds",
        x_label="α, share of the samples in phase 1",
        y_label="test error relative to plain training",
        series=series,
    )
