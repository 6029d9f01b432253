"""Small against large batches on MNIST: sharpness, largest eigenvalue, test error and gap."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Self

from mindgap.core import (
    Claim,
    Paired,
    Points,
    Recipe,
    Record,
    Scatter,
    Study,
    Table,
    Trial,
    holm,
    option,
    paired,
)
from mindgap.data.mnist import mnist
from mindgap.measures import HessianTrace, KeskarSharpness, LargestHessianEigenvalue
from mindgap.nets.mlp import MLP
from mindgap.training.fit import fit

ARMS = ("small", "large, equal epochs", "large, equal steps")
RADII = (1e-3, 5e-4)  # the paper's
TINY = 1e-12  # so that a trace that happens to be negative has a logarithm
CLAIM = (
    "Published claim (Keskar et al., 2017): large batches, of 10 % of the data, end in sharper minima "
    "and generalize worse than small ones, of 256 samples. The paper trains for equally many epochs."
)
BOX = (
    "Sharpness: percent by which the training loss rises, divided by 1 + loss, in the box |u| ≤ "
    "ε (|w| + 1) of all weights. It is searched by conditional gradients from the weights and from "
    "the corners along the two sharpest directions. All training digits are used."
)
# What is compared: its key in a record, its name, and whether ratios count rather than differences.
COMPARED = {
    "sharpness 0.001": ("sharpness at ε = 1e-3", True),
    "sharpness 0.0005": ("sharpness at ε = 5e-4", True),
    "eigenvalue": ("largest Hessian eigenvalue", True),
    "trace": ("Hessian trace", True),
    "test_error": ("test error", False),
    "gap": ("gap", False),
}
Runs = Mapping[str, Mapping[int, Record]]


class LargeBatch(Study):
    r"""Sharpness and generalization after training with small and with large batches.

    Formula: $\phi_\varepsilon = 100 \cdot \frac{\max_{|u_i| \le \varepsilon (|w_i| + 1)} \hat L(w +
    u) - \hat L(w)}{1 + \hat L(w)}, \quad \mathrm{gap} = \mathrm{err}_{test} - \mathrm{err}_{train}$

    Reading: Keskar et al. explain a worse gap of large batches by sharper minima. With the same
    number of epochs a large batch takes fewer steps and fits less, so a second arm takes as many
    steps as small batches do. Training losses are shown, because a loss near zero is flat.

    Assumes: A 784-100-10 ReLU perceptron trained by Adam without decay on a subset of MNIST. Every
    seed has digits, initial weights and batches of its own, the first two shared by all arms.

    >>> len(LargeBatch(seeds=3).trials())
    9
    """

    method = ("E7",)
    cites = ("keskar2017large",)
    reproduces = ("expressivity: Batch size",)

    seeds: int = option(10, help="number of paired seeds, each with its own digits", low=2)
    samples: int = option(2_000, help="digits to train on", low=20)
    epochs: int = option(60, help="passes over the training digits", low=1)
    small: int = option(32, help="small batch size", low=1)
    large_share: float = option(0.1, help="large batch, as a share of the data", above=0, high=1)
    width: int = option(100, help="hidden units", low=1)
    learning_rate: float = option(1e-3, help="learning rate of Adam", above=0)

    def trials(self) -> Sequence[Trial]:
        """Every arm with every seed."""
        return [
            Trial(parameters={"arm": arm}, seed=seed) for seed in range(self.seeds) for arm in ARMS
        ]

    def run(self, trial: Trial) -> Record:
        """Train one arm and measure it."""
        data = mnist().subset(self.samples, seed=trial.seed)
        size, epochs = self._budget(trial["arm"])
        recipe = Recipe(
            model=functools.partial(MLP, (784, self.width, 10), "relu"),
            train=data.train,
            test=data.test,
            learning_rate=self.learning_rate,
            batch_size=size,
            epochs=epochs,
        )
        subject = fit(recipe, seed=trial.seed, evaluate_every=0).subject()
        sharpness = {
            f"sharpness {radius:g}": KeskarSharpness(radius=radius, samples=self.samples)(subject)
            for radius in RADII
        }
        spectrum = LargestHessianEigenvalue(samples=self.samples)(subject)
        errors = {which: subject.mean_error(which) for which in ("train", "test")}
        return {
            **{name: result.value for name, result in sharpness.items()},
            "eigenvalue": spectrum.value,
            "smallest": spectrum.terms["smallest"],
            "trace": HessianTrace(samples=self.samples)(subject).value,
            "steps": epochs * -(-self.samples // size),
            "train_loss": subject.mean_loss("train"),
            "train_error": errors["train"],
            "test_error": errors["test"],
            "gap": errors["test"] - errors["train"],
        }

    def _budget(self, arm: str) -> tuple[int, int]:
        """Return batch size and epochs of an arm."""
        if arm == "small":
            return self.small, self.epochs
        size = max(1, round(self.large_share * self.samples))
        if arm == "large, equal epochs":
            return size, self.epochs
        steps = self.epochs * -(-self.samples // self.small)
        return size, max(1, round(steps / -(-self.samples // size)))

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per arm, and paired comparisons of large with small batches in the notes."""
        runs: dict[str, dict[int, Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["arm"], {})[trial.seed] = record
        columns = ("steps", "train_loss", "train_error", *list(COMPARED)[::-1])
        return Table(
            title=f"Small and large batches on {self.samples:,} digits of MNIST, means over seeds",
            columns=("batches", "batch size", *(name.replace("_", " ") for name in columns)),
            rows=tuple(
                (arm, self._budget(arm)[0], *(_mean(own, name) for name in columns))
                for arm, own in runs.items()
            ),
            notes=(CLAIM, BOX, *_comparisons(runs)),
            charts=(_chart(runs),),
            claims=_claims(runs),
        )

    def tiny(self) -> Self:
        """Two seeds, few digits and epochs."""
        return self.replace(seeds=2, samples=60, epochs=2, small=3, width=8)


def _mean(own: Mapping[int, Record], name: str) -> float:
    return math.fsum(record[name] for record in own.values()) / len(own)


def _tests(runs: Runs) -> list[tuple[str, str, Paired, float]]:
    """Compare each large arm with small batches, paired over seeds, all corrected by Holm."""
    found = [
        (arm, name, paired(*(_values(runs[one], name) for one in (arm, "small"))))
        for arm in ARMS[1:]
        for name in COMPARED
        if arm in runs and len(runs[arm]) > 1 and runs[arm].keys() == runs["small"].keys()
    ]
    corrected = holm([test.p_value for *_, test in found])
    return [(*one, p_value) for one, p_value in zip(found, corrected, strict=True)]


def _comparisons(runs: Runs) -> list[str]:
    return [
        _sentence(arm, *COMPARED[name], test, p_value) for arm, name, test, p_value in _tests(runs)
    ]


def _claims(runs: Runs) -> tuple[Claim, ...]:
    """Judge the paper's claims in its own setting, equal epochs."""
    shown = {
        name: test.difference > 0 and p_value <= 0.05
        for arm, name, test, p_value in _tests(runs)
        if arm == "large, equal epochs"
    }
    sharp = [shown[name] for name in shown if COMPARED[name][1]]
    worse = [shown[name] for name in shown if not COMPARED[name][1]]
    return (
        (
            Claim.counted("At equal epochs, large batches end in sharper minima", *_count(sharp)),
            Claim.counted("At equal epochs, large batches generalize worse", *_count(worse)),
        )
        if shown
        else ()
    )


def _count(shown: Sequence[bool]) -> tuple[int, int]:
    return sum(shown), len(shown)


def _values(own: Mapping[int, Record], name: str) -> list[float]:
    """List the values by seed; logarithms where ratios count."""
    values = [own[seed][name] for seed in sorted(own)]
    return [math.log(max(v, TINY)) for v in values] if COMPARED[name][1] else values


def _sentence(arm: str, name: str, ratio: bool, test: Paired, p_value: float) -> str:
    ends = (test.difference, test.interval.low, test.interval.high)
    middle, low, high = map(math.exp, ends) if ratio else ends
    told = (
        f"{middle:.3g} times [{low:.3g}, {high:.3g}]"
        if ratio
        else f"{middle:+.4f} [{low:.4f}, {high:.4f}]"
    )
    verdict = "as claimed" if test.difference > 0 else "against the claim"
    if p_value > 0.05:
        verdict = "undecided"
    return (
        f"{arm[0].upper()}{arm[1:]}, {name} relative to small batches: {told}, p = {p_value:.2g} "
        f"(paired over {test.pairs} seeds, Holm): {verdict}."
    )


def _chart(runs: Runs) -> Scatter:
    return Scatter(
        title="Gap against sharpness, one point per network",
        x_label="sharpness at ε = 1e-3 (percent)",
        y_label="generalization gap (error rate)",
        x_scale="log",
        points=[
            Points(
                name=arm,
                x=[record["sharpness 0.001"] for record in own.values()],
                y=[record["gap"] for record in own.values()],
            )
            for arm, own in runs.items()
        ],
    )
