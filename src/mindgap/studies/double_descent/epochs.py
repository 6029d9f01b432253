"""Double descent over training time: two time scales in closed form, and networks."""

import math
from collections.abc import Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

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
    generator,
    mean_interval,
    option,
    paired,
)
from mindgap.nets.mlp import MLP
from mindgap.studies.double_descent.features import CLASSES, noisy_digits
from mindgap.training.ensemble import ensemble

# Two groups of features: many large ones, which are learned first and soon fit noise, and a few
# small ones, which are learned late. Each group carries a signal of variance 1.
SAMPLES, LARGE, SMALL, SCALE, NOISE = 200, 100, 20, 0.03, 1.0
TIMES = [round(10 ** (k / 8)) for k in range(49)]  # steps 1 … 10⁶
MODELS = {"linear": "linear, two scales", "network": "network on digits"}
NOTES = (
    "Published claim (Nakkiran et al., 2020): with wrong labels, test error over epochs falls, rises "
    "and falls again. Heckel and Yilmaz (2021) explain it by parts that are learned at different "
    "speeds.",
    "The first minimum and the peak after it are read from the mean curve of one half of the seeds; "
    "rise and second fall are measured on the other half.",
)


class DoubleDescentEpochs(Study):
    r"""Test error over training time, for a linear model in closed form and for a network.

    Formula: $\theta_t = V (I - (I - \eta S^2/n)^t) S^{-1} U^\top y$

    Reading: Gradient descent learns large features first. If these fit noise before small ones fit
    signal, test error rises in between: two curves of bias and variance, one after the other. A
    network shows this only if its features are learned at such different speeds.

    Assumes: The linear model has 100 large and 20 small Gaussian features, 200 samples and noise of
    variance 1; its test error is exact. The network has one hidden layer and sees 8×8 digits, some
    with wrong labels.

    >>> [trial["model"] for trial in DoubleDescentEpochs(seeds=4).trials()[::4]]
    ['linear', 'network']
    """

    method = ("S8",)
    cites = ("nakkiran2020deep", "heckel2021early")
    reproduces = ("stability: Double descent",)

    seeds: int = option(20, help="draws per model, half of them to find minimum and peak", low=4)
    samples: int = option(400, help="training digits of the network", low=20, high=1500)
    noise: float = option(0.2, help="share of wrong labels", low=0, high=0.9)
    width: int = option(256, help="hidden units of the network", low=1)
    epochs: int = option(600, help="passes of the network over its digits", low=8)
    learning_rate: float = option(3e-4, help="learning rate of Adam for the network", above=0)

    def trials(self) -> Sequence[Trial]:
        """Every model with every seed."""
        return [
            Trial(parameters={"model": name}, seed=seed)
            for name in MODELS
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Return the places in time, and test and training error there."""
        return linear_curve(trial.seed) if trial["model"] == "linear" else self._network(trial.seed)

    def _network(self, seed: int) -> Record:
        data = noisy_digits(self.samples, self.noise, seed)
        recipe = Recipe(
            model=lambda: MLP((data.inputs.shape[1], self.width, CLASSES)),
            train=(data.inputs, data.labels),
            test=(data.test_inputs, data.test_labels),
            epochs=self.epochs,
            batch_size=50,
            learning_rate=self.learning_rate,
        )
        (member,) = ensemble(recipe, seeds=[seed], evaluate_every=max(1, self.epochs // 150))
        rows = [row for row in member.history if row.get("test_error") is not None]
        return {
            "time": [int(row["epoch"]) for row in rows],
            "test": [row["test_error"] for row in rows],
            "train": [row["train_error"] for row in rows],
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per model."""
        runs: dict[str, list[Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["model"], []).append(record)
        found = {name: turning(own) for name, own in runs.items()}
        return Table(
            title="Double descent over training time",
            columns=(
                *("model", "time of first minimum", "at it", "time of peak", "at the peak"),
                *("at the end", "rise", "p of rise", "second fall", "p of second fall"),
            ),
            rows=tuple((MODELS[name], *found[name]) for name in found),
            notes=(*NOTES, *(_judged(name, found[name]) for name in found)),
            charts=tuple(_chart(name, own) for name, own in runs.items()),
            claims=tuple(
                Claim.shown(
                    f"Test error falls, rises and falls again ({MODELS[name]}).", all(_seen(row))
                )
                for name, row in found.items()
            ),
        )

    def tiny(self) -> Self:
        """Four seeds and a small network."""
        return self.replace(seeds=4, samples=40, width=8, epochs=8)


def linear_curve(seed: int) -> dict[str, list[float]]:
    """Run gradient descent on one draw of the two-scale problem, in closed form.

    Args:
        seed: Seed of the draw.

    >>> sorted(linear_curve(0))
    ['test', 'time', 'train']
    """
    random = generator(seed)
    scales = torch.cat([torch.ones(LARGE), torch.full((SMALL,), SCALE)]).double()
    inputs = scales * torch.randn(SAMPLES, len(scales), generator=random, dtype=torch.float64)
    truth = torch.cat([torch.full((k,), k**-0.5) for k in (LARGE, SMALL)]).double() / scales
    noise = math.sqrt(NOISE) * torch.randn(SAMPLES, generator=random, dtype=torch.float64)
    targets = inputs @ truth + noise
    weights = descended(inputs, targets, torch.tensor(TIMES, dtype=torch.float64))
    missed = ((weights - truth) * scales).square().sum(1)
    fitted = (weights @ inputs.T - targets).square().mean(1)
    return {
        "time": [float(time) for time in TIMES],
        "test": (missed + NOISE).tolist(),
        "train": fitted.tolist(),
    }


def descended(inputs: Tensor, targets: Tensor, times: Tensor) -> Tensor:
    r"""Compute the weights of gradient descent on squared errors after many steps, without steps.

    The step is the largest stable one divided by two, and descent begins at zero.

    Args:
        inputs: One row per sample.
        targets: One number per sample.
        times: Numbers of steps, one row of weights each.

    >>> weights = descended(
    ...     torch.eye(2).double(), torch.ones(2).double(), torch.tensor([1.0, 50.0])
    ... )
    >>> [round(float(w), 3) for w in weights[:, 0]]
    [0.5, 1.0]
    """
    left, sizes, right = torch.linalg.svd(inputs, full_matrices=False)
    left_over = (1 - 0.5 * (sizes / sizes.max()).square()) ** times[:, None]
    weights: Tensor = ((1 - left_over) / sizes * (left.T @ targets)) @ right
    return weights


def turning(runs: Sequence[Record]) -> tuple[float, ...]:
    """Find first minimum and later peak on one half of the runs, and measure them on the other.

    Args:
        runs: Curves at the same places.

    Returns:
        Time of the minimum and its mean error, of the peak and its mean error, mean error at the
        end, rise and its p-value, second fall and its p-value.

    >>> curve = {"time": [1, 2, 3, 4], "test": [3.0, 1.0, 2.0, 0.5]}
    >>> turning([curve] * 4)[:6]
    (2, 1.0, 3, 2.0, 0.5, 1.0)
    """
    curves = torch.tensor([run["test"] for run in runs], dtype=torch.float64)
    found = curves[::2].mean(0)
    rises = [float(found[k:].max() - found[k]) for k in range(len(found))]
    low = max(range(len(rises)), key=rises.__getitem__)
    high = low + int(found[low:].argmax())
    test = curves[1::2]
    rise = paired(test[:, high].tolist(), test[:, low].tolist())
    fall = paired(test[:, high].tolist(), test[:, -1].tolist())
    times = runs[0]["time"]
    return (
        *(times[low], float(test[:, low].mean()), times[high], float(test[:, high].mean())),
        *(float(test[:, -1].mean()), rise.difference, rise.p_value),
        *(fall.difference, fall.p_value),
    )


def _seen(row: tuple[float, ...]) -> tuple[bool, bool]:
    """Whether the rise and the second fall are shown."""
    rise, rise_p, fall, fall_p = row[5:]
    return rise > 0 and rise_p < 0.05, fall > 0 and fall_p < 0.05


def _judged(name: str, row: tuple[float, ...]) -> str:
    rises, falls = _seen(row)
    if rises and falls:
        verdict = "error falls, rises and falls again"
    elif rises:
        verdict = "error falls and rises; no second fall is shown"
    else:
        verdict = "no rise is shown"
    return f"{MODELS[name].capitalize()}: {verdict}."


def _chart(name: str, runs: Sequence[Record]) -> Chart:
    times = runs[0]["time"]

    def series(which: str, words: str) -> Series:
        columns = list(zip(*(run[which] for run in runs), strict=True))
        found = [mean_interval(column) for column in columns]
        return Series(
            name=words,
            x=times,
            y=[math.fsum(column) / len(column) for column in columns],
            low=[one.low for one in found],
            high=[one.high for one in found],
            mode="lines",
        )

    error: Mapping[str, str] = {"linear": "squared error", "network": "error rate"}
    return Line(
        title=f"Error over training time: {MODELS[name]}",
        x_label="steps" if name == "linear" else "epochs",
        y_label=error[name],
        x_scale="log",
        from_zero=True,
        percent=name == "network",
        series=[series("test", "test"), series("train", "training")],
    )
