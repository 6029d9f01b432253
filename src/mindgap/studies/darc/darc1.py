"""DARC1 against the plain loss, and against simpler ways to keep logits small."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from mindgap.core import Record, Remedy, Study, Table, Trial, holm, option, paired
from mindgap.remedies.penalties.label_smoothing import LabelSmoothing
from mindgap.remedies.penalties.logit_penalty import LogitPenalty
from mindgap.remedies.penalties.weight_decay import WeightDecay
from mindgap.studies.darc.problems import PROBLEMS, error, ratio, recipe_of
from mindgap.training.ensemble import ensemble

PLAIN = "plain"
PAPER = {"MNIST": (0.89, 0.61), "MNIST, shifted": (0.95, 0.67), "CIFAR-10": (0.97, 0.79)}
EXPECTED = {
    **{f"{name}, ratio": value for name, (value, _) in PAPER.items()},
    **{f"{name}, stdv": deviation for name, (_, deviation) in PAPER.items()},
}
Made = dict[str, tuple[Remedy, ...]]
NOTES = (
    "Every method has three strengths at two learning rates. Its setting is chosen by the mean error "
    "on validation data over all seeds, then judged on test data. 'Same rate' chooses among the "
    "strengths at the first rate and compares with the plain loss at that rate. 'Tuned' chooses the "
    "rate too and compares with the retuned baseline: the plain loss at the best of four rates, "
    "whose own ratio is in the row 'rate only'.",
    "The paper has other networks and all images: a convolutional network on MNIST and ResNeXt-29 on "
    "CIFAR-10, with data augmentation. Here it is a perceptron with one hidden layer and a subset "
    "of the images, those of CIFAR-10 at half their resolution. Images and subset are the same "
    "for all seeds, so intervals cover initial weights and batches.",
    "The paper's row 'stdv' can be read in two ways: as the ratio of the deviations over seeds, and "
    "as the deviation of the ratios, seed by seed. Both are given.",
    "'Chosen by seed' chooses the setting for every seed by its own validation error.",
)


@dataclasses.dataclass(frozen=True)
class Arm:
    """One way to train: a method, its setting and the learning rate."""

    method: str
    setting: str
    rate: float

    @property
    def key(self) -> dict[str, Any]:
        """Plain data that tell the arm from the others."""
        return {"method": self.method, "setting": self.setting, "rate": self.rate}

    @classmethod
    def of(cls, trial: Trial) -> Self:
        """Read back what ``key`` wrote."""
        return cls(trial["method"], trial["setting"], trial["rate"])

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The remedies of the arm."""
        return () if self.method == PLAIN else methods()[self.method][self.setting]

    @property
    def words(self) -> str:
        """Setting and learning rate in words."""
        return ", ".join(part for part in (self.setting, f"rate {self.rate:g}") if part)


Runs = Mapping[Arm, Record]


class DARC1(Study):
    r"""Error of DARC1 relative to the plain loss, with four controls.

    Formula: $\frac{\mathrm{err}(\lambda^*)}{\mathrm{err}(0)}, \qquad \ell + \lambda \max_k
    \frac{1}{n} \sum_i |h_k(x_i)|$

    Reading: The paper reports ratios of 0.89, 0.95 and 0.97. A ratio below one may come from small
    logits as such: the mean size of the logits, their square and label smoothing have no maximum
    over classes, and weight decay and the learning rate are what anybody would tune first.

    Assumes: The subset, network and epochs given; the strength is never chosen on test data.

    >>> len(DARC1().trials())
    102
    """

    method = ("K7", "K9")
    cites = ("kawaguchi2017generalization",)
    reproduces = ("darc: DARC1",)
    expected = EXPECTED

    seeds: int = option(20, help="number of paired seeds", low=2)
    samples: int = option(1_000, help="images to train on", low=20)
    validation_samples: int = option(1_000, help="images to choose the settings on", low=10)
    test_samples: int = option(5_000, help="images of the official test part", low=10, high=10_000)
    epochs: int = option(20, help="passes over the training images", low=1)
    width: int = option(128, help="hidden units", low=1)
    learning_rate: float = option(3e-3, help="first learning rate of Adam", above=0)

    def trials(self) -> Sequence[Trial]:
        """One trial per problem and arm; all its seeds are trained at once."""
        return [
            Trial(parameters={"problem": problem, **arm.key})
            for problem in PROBLEMS
            for arm in self.arms()
        ]

    def arms(self) -> list[Arm]:
        """List the plain loss at four rates, and every method at three strengths and two rates."""
        first = self.learning_rate
        rates = [float(f"{rate:.4g}") for rate in (first / 3, first, first * 10 / 3, 10 * first)]
        plain = [Arm(PLAIN, "", rate) for rate in rates]
        return [
            *plain,
            *(
                Arm(method, setting, rate)
                for method, made in methods().items()
                for setting in made
                for rate in rates[1:3]
            ),
        ]

    def run(self, trial: Trial) -> Record:
        """Train all seeds of one arm."""
        problem, arm = PROBLEMS[trial["problem"]], Arm.of(trial)
        parts = problem.parts((self.samples, self.validation_samples, self.test_samples))
        recipe = recipe_of(parts, self.width, epochs=self.epochs, learning_rate=arm.rate)
        remedies = (*problem.augmentation, *arm.remedies)
        members = ensemble(recipe, range(self.seeds), remedies=remedies, keep_history=False)
        return {
            name: [error(member.model, parts[name]) for member in members]
            for name in ("validation", "test")
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per problem, method and way to choose."""
        found: dict[str, dict[Arm, Record]] = {}
        for trial, record in records:
            found.setdefault(trial["problem"], {})[Arm.of(trial)] = record
        rows = [row for problem, runs in found.items() for row in self._rows(problem, runs)]
        corrected = holm([row[-1] for row in rows])
        columns = (
            *("data", "method", "chosen", "setting", "control error", "test error"),
            *("paper's ratio", "ratio", "low", "high", "chosen by seed", "paper's stdv"),
            *("ratio of deviations", "deviation of ratios", "p (Holm)"),
        )
        return Table(
            title=f"DARC1 and its controls: test error relative to the plain loss, {self.seeds} "
            "seeds",
            columns=columns,
            rows=tuple((*row[:-1], round(p, 4)) for row, p in zip(rows, corrected, strict=True)),
            notes=NOTES,
        )

    def _rows(self, problem: str, runs: Runs) -> list[tuple[Any, ...]]:
        """Rows of a problem, each with its p-value at the end."""
        plain, rate = {arm: runs[arm] for arm in runs if arm.method == PLAIN}, self.arms()[1].rate
        base = {arm: run for arm, run in plain.items() if arm.rate == rate}
        if not base:
            return []
        tuned, rows = best(plain), [compared(problem, "rate only", plain, best(base))]
        for method in methods():
            own = {arm: run for arm, run in runs.items() if arm.method == method}
            same = {arm: run for arm, run in own.items() if arm.rate == rate}
            if same:
                rows.append(compared(problem, "same rate", same, best(base)))
                rows.append(compared(problem, "tuned", own, tuned))
        return rows

    def tiny(self) -> Self:
        """Two seeds and one epoch on twenty images."""
        return self.replace(
            seeds=2, samples=20, validation_samples=10, test_samples=10, epochs=1, width=4
        )


@functools.cache
def methods() -> dict[str, Made]:
    """Return the candidate settings of DARC1 and of its controls, by method."""

    def penalties(form: Any, factors: Sequence[float]) -> Made:
        return {f"λ = {one:g}": (LogitPenalty(factor=one, form=form),) for one in factors}

    return {
        "DARC1": penalties("darc1", (0.03, 0.1, 0.3)),
        "mean |logit|": penalties("mean", (0.1, 0.3, 1.0)),
        "squared logit": penalties("squared", (0.03, 0.1, 0.3)),
        "weight decay": {f"{one:g}": (WeightDecay(decay=one),) for one in (0.01, 0.1, 1.0)},
        "label smoothing": {f"{one:g}": (LabelSmoothing(share=one),) for one in (0.1, 0.3, 0.5)},
    }


def best(runs: Runs) -> tuple[Arm, Record]:
    """Return the arm with the smallest mean error on validation data; the first of equals."""
    return min(runs.items(), key=lambda pair: float(np.mean(pair[1]["validation"])))


def compared(problem: str, way: str, runs: Runs, control: tuple[Arm, Record]) -> tuple[Any, ...]:
    """Make the row of a method: the best of its arms against the control."""
    (arm, run), (_, base) = best(runs), control
    errors, plain = run["test"], base["test"]
    value, interval = ratio(errors, plain)
    by_seed, _ = ratio(_by_seed(runs), plain)
    name = "learning rate retuned" if arm.method == PLAIN else arm.method
    published = PAPER[problem] if arm.method == "DARC1" and way == "same rate" else (None, None)
    deviations = float(np.std(errors, ddof=1)) / max(float(np.std(plain, ddof=1)), 1e-12)
    spread = float(np.std(np.asarray(errors) / np.maximum(plain, 1e-12), ddof=1))
    means = float(np.mean(plain)), float(np.mean(errors))
    return (
        *(problem, name, way, arm.words, *means, published[0], value, interval.low, interval.high),
        *(by_seed, published[1], deviations, spread, paired(errors, plain).p_value),
    )


def _by_seed(runs: Runs) -> list[float]:
    """The test errors with the setting that was best on the validation data of each seed."""
    validation, test = ([run[part] for run in runs.values()] for part in ("validation", "test"))
    chosen = np.argmin(validation, axis=0)
    return [test[place][seed] for seed, place in enumerate(chosen)]
