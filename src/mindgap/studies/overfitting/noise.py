"""Noise that is too strong to train with: dropout, noisy inputs and shifts at growing strength."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from mindgap.core import (
    Claim,
    Line,
    Record,
    Remedy,
    Series,
    Study,
    Table,
    Trial,
    holm,
    option,
    paired,
)
from mindgap.core.stats import mean_interval
from mindgap.data.mnist import mnist
from mindgap.remedies.augmentation.input_noise import InputNoise
from mindgap.remedies.augmentation.random_shifts import RandomShifts
from mindgap.remedies.perturbation.dropout import Dropout
from mindgap.studies.overfitting.problems import problem

ARMS: dict[str, tuple[Remedy, ...]] = {
    "dropout rate": tuple(Dropout(rate=rate) for rate in (0.25, 0.5, 0.75, 0.9, 0.97)),
    "input noise": tuple(InputNoise(scale=scale) for scale in (0.3, 1.0, 3.0, 10.0)),
    "shift in pixels": tuple(RandomShifts(pixels=pixels) for pixels in (1, 2, 4, 7)),
}
NOTES = (
    "A network with two hidden layers on a subset of MNIST (14 × 14 pixels), Adam, a fixed number of "
    "steps. Every seed has images of its own. The training error is that of the clean training "
    "images in evaluation mode.",
    "Changes are against no noise, paired by seed; p-values are corrected by Holm over all "
    "strengths. 'Too strong': the test error is significantly above that without noise. The guess "
    "of one class errs on 90 %.",
)


class OverfittingNoise(Study):
    r"""Train with growing noise until training fails: dropout, noisy inputs, random shifts.

    Formula: $\tilde R(s) = R(A_s), \qquad s \in \{0, s_1, s_2, \dots\}$

    Reading: The slides say that stochastic regularization often helps, makes training slower, and
    that too much gradient variance can prevent training completely. So the test error should first
    fall, then rise to that of a guess, and the training error should rise with every strength.

    Assumes: A fixed number of steps. Training for longer tolerates more noise.

    >>> len(OverfittingNoise(seeds=3).trials())
    3
    """

    method = ("E5",)
    cites = ("srivastava2014dropout", "bishop1995training")
    reproduces = ("expressivity: Too much noise",)

    seeds: int = option(6, help="paired runs, each with images of its own", low=2)
    samples: int = option(500, help="training images", low=50)
    held: int = option(1000, help="validation images, and test images", low=10)
    epochs: int = option(40, help="passes over the training images", low=1)
    width: int = option(64, help="units of both hidden layers", low=1)

    def prepare(self) -> None:
        """See that MNIST is here."""
        mnist(10, 10)

    def trials(self) -> Sequence[Trial]:
        """One trial per seed."""
        return [Trial(parameters={}, seed=seed) for seed in range(self.seeds)]

    def run(self, trial: Trial) -> Record:
        """Train with every kind of noise at every strength."""
        sizes = (self.samples, self.held, self.held)
        made = problem("MNIST", sizes, trial.seed, self.epochs, self.width)
        return {
            "none": made.trained(trial.seed),
            **{
                arm: [made.trained(trial.seed, [remedy]) for remedy in remedies]
                for arm, remedies in ARMS.items()
            },
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per kind and strength."""
        runs = [record for _, record in records]
        plain = {part: [run["none"][part] for run in runs] for part in ("train", "test")}
        rows = [
            _row(arm, place, runs, plain["test"])
            for arm, remedies in ARMS.items()
            for place in range(len(remedies))
        ]
        corrected = holm([row["p"] for row in rows])
        told = [_verdict(row["change"], p) for row, p in zip(rows, corrected, strict=True)]
        none = ("none", 0.0, *(float(np.mean(plain[part])) for part in plain), *(None,) * 4, "—")
        return Table(
            title="Noise in training: errors by kind and strength",
            columns=(
                *("noise", "strength", "training error", "test error", "change", "low", "high"),
                *("p (Holm)", "verdict"),
            ),
            rows=(
                none,
                *(
                    (*[row[key] for key in list(row)[:-1]], p, verdict)
                    for row, p, verdict in zip(rows, corrected, told, strict=True)
                ),
            ),
            notes=(*_judgments(rows, told), *NOTES),
            claims=_claims(rows, told),
            charts=tuple(_chart(arm, runs) for arm in ARMS),
        )

    def tiny(self) -> Self:
        """Use two seeds, few images and one epoch."""
        return self.replace(seeds=2, samples=50, held=20, epochs=1, width=4)


def _row(
    arm: str, place: int, runs: Sequence[Mapping[str, Any]], plain: Sequence[float]
) -> dict[str, Any]:
    remedy = ARMS[arm][place]
    own = {part: [run[arm][place][part] for run in runs] for part in ("train", "test")}
    found = paired(own["test"], plain)
    return {
        "arm": arm,
        "strength": float(getattr(remedy, remedy.strength)),
        **{part: float(np.mean(values)) for part, values in own.items()},
        "change": found.difference,
        "low": found.interval.low,
        "high": found.interval.high,
        "p": found.p_value,
    }


def _verdict(change: float, p: float) -> str:
    if p >= 0.05:
        return "not shown"
    return "helps" if change < 0 else "too strong"


def _claims(rows: Sequence[Mapping[str, Any]], told: Sequence[str]) -> tuple[Claim, ...]:
    words = {
        arm: [word for row, word in zip(rows, told, strict=True) if row["arm"] == arm]
        for arm in ARMS
    }
    return (
        Claim.counted(
            "Noise in training helps at some strength, by kind of noise.",
            sum("helps" in own for own in words.values()),
            len(words),
        ),
        Claim.counted(
            "Noise that is too strong harms, by kind of noise.",
            sum(own[-1] == "too strong" for own in words.values()),
            len(words),
        ),
    )


def _judgments(rows: Sequence[Mapping[str, Any]], told: Sequence[str]) -> list[str]:
    named = [
        (f"{row['arm']} {row['strength']:g}", word) for row, word in zip(rows, told, strict=True)
    ]
    groups = {
        word: [name for name, own in named if own == word] for word in ("helps", "too strong")
    }
    return [f"{word.capitalize()}: {', '.join(names)}." for word, names in groups.items() if names]


def _chart(arm: str, runs: Sequence[Mapping[str, Any]]) -> Line:
    strengths = [0.0, *(float(getattr(one, one.strength)) for one in ARMS[arm])]
    series = list[Series]()
    for part, label in (("train", "training error"), ("test", "test error")):
        table = [[run["none"][part] for run in runs]]
        table += [[run[arm][k][part] for run in runs] for k in range(len(ARMS[arm]))]
        spread = [mean_interval(values) for values in table]
        low, high = [row.low for row in spread], [row.high for row in spread]
        means = [float(np.mean(values)) for values in table]
        series.append(Series(name=label, x=strengths, y=means, low=low, high=high))
    return Line(
        title=f"Error by {arm}",
        x_label=arm,
        y_label="share of wrong answers",
        series=series,
        percent=True,
    )
