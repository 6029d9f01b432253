"""Remedies against over-fitting, each tuned on validation data, against a tuned control."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from mindgap.core import Bar, Claim, Record, Series, Study, Table, Trial, holm, option, paired
from mindgap.data.mnist import mnist
from mindgap.remedies.augmentation.input_noise import InputNoise
from mindgap.remedies.augmentation.random_shifts import RandomShifts
from mindgap.remedies.penalties.weight_decay import WeightDecay
from mindgap.remedies.perturbation.dropout import Dropout
from mindgap.remedies.schedules.early_stopping import EarlyStopping
from mindgap.remedies.schedules.snapshot_ensemble import SnapshotEnsemble
from mindgap.remedies.schedules.weight_averaging import WeightAveraging
from mindgap.studies.overfitting.problems import NAMES, problem

CONTROL = "control"
RATES = (1.0, 1 / 3, 3.0)  # factors of the learning rate: as many settings as a remedy has
COMMON: dict[str, tuple[Any, ...]] = {
    "weight decay": tuple(WeightDecay(decay=decay) for decay in (0.03, 0.1, 0.3)),
    "early stopping": tuple(EarlyStopping(patience=epochs, share=0.2) for epochs in (3, 10, 30)),
    "weight averaging": tuple(WeightAveraging(share=share) for share in (0.25, 0.5, 0.75)),
    "dropout": tuple(Dropout(rate=rate) for rate in (0.1, 0.3, 0.5)),
    "snapshot ensemble": tuple(SnapshotEnsemble(cycles=cycles) for cycles in (2, 4, 8)),
}
AUGMENTED: dict[str, tuple[Any, ...]] = {
    "curve": tuple(InputNoise(scale=scale) for scale in (0.05, 0.1, 0.2)),
    "MNIST": tuple(RandomShifts(pixels=pixels) for pixels in (1, 2, 3)),
}
NOTES = (
    "Errors are squared errors for the curve and shares of wrong answers for MNIST (14 × 14 pixels). "
    "Every seed has samples of its own.",
    "Every arm has three settings, the control three learning rates; each is chosen by its mean error "
    "on validation data. The change is arm minus control on test data, paired by seed, with a 95 % "
    "interval; p-values are corrected by Holm over both problems.",
    "Augmentation is noise on the inputs for the curve and random shifts for MNIST. Early stopping "
    "takes a fifth of its training data to decide when to stop. All arms plan the same number of "
    "steps; a snapshot ensemble takes as many forward passes per answer as it has snapshots.",
)


class OverfittingRemedies(Study):
    r"""Compare six remedies against over-fitting with a tuned control, paired by seed.

    Formula: $\Delta = \frac{1}{S} \sum_{s=1}^{S} \left( R(A_s) - R(C_s) \right)$

    Reading: Below zero, the remedy helps. The slides say that weight decay and early stopping help a
    bit, that augmentation and dropout often help, and that snapshot ensembles can help.

    Assumes: Networks with two hidden layers on few samples, where a plain run over-fits.

    >>> len(OverfittingRemedies(seeds=3).trials())
    6
    """

    method = ("E5",)
    cites = ("huang2017snapshot", "loshchilov2019decoupled", "srivastava2014dropout")
    reproduces = ("expressivity: Remedies",)

    seeds: int = option(10, help="paired runs, each with samples of its own", low=2)
    curve_samples: int = option(50, help="training samples of the curve", low=10)
    curve_epochs: int = option(200, help="passes over them", low=2)
    mnist_samples: int = option(500, help="training images", low=50)
    mnist_epochs: int = option(40, help="passes over them", low=2)
    held: int = option(1000, help="validation samples, and test samples", low=10)
    width: int = option(64, help="units of both hidden layers", low=1)

    def prepare(self) -> None:
        """See that MNIST is here."""
        mnist(10, 10)

    def trials(self) -> Sequence[Trial]:
        """Every problem with every seed."""
        return [
            Trial(parameters={"problem": name}, seed=seed)
            for name in NAMES
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train all settings of all arms on the same samples."""
        name, seed = trial["problem"], trial.seed
        size, epochs = (
            (self.curve_samples, self.curve_epochs)
            if name == "curve"
            else (self.mnist_samples, self.mnist_epochs)
        )
        made = problem(name, (size, self.held, self.held), seed, epochs, self.width)
        rate = made.recipe.learning_rate
        control = [made.trained(seed, learning_rate=rate * factor) for factor in RATES]
        arms = {**COMMON, "augmentation": AUGMENTED[name]}
        return {
            CONTROL: control,
            **{
                arm: [made.trained(seed, [remedy]) for remedy in remedies]
                for arm, remedies in arms.items()
            },
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per problem and arm."""
        rows = [
            row
            for name in NAMES
            for row in _rows(
                name, [record for trial, record in records if trial["problem"] == name]
            )
        ]
        asked = [row for row in rows if row["p"] is not None]
        for row, corrected in zip(asked, holm([row["p"] for row in asked]), strict=True):
            row["p"] = corrected
        return Table(
            title="Remedies against over-fitting, chosen on validation data",
            columns=(
                *("problem", "arm", "chosen", "training error", "validation error", "test error"),
                *("change", "low", "high", "p (Holm)", "verdict"),
            ),
            rows=tuple((*list(row.values()), _verdict(row)) for row in rows),
            notes=(*_judgments(rows), *NOTES),
            claims=_claims(rows),
            charts=tuple(
                _chart(name, rows) for name in NAMES if any(r["problem"] == name for r in rows)
            ),
        )

    def tiny(self) -> Self:
        """Use two seeds, few samples and two epochs."""
        few = {"curve_samples": 10, "curve_epochs": 2, "mnist_samples": 50, "mnist_epochs": 2}
        return self.replace(**few, seeds=2, held=20, width=4)


def _rows(name: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    if len(records) < 2:
        return []
    settings = {arm: _chosen([record[arm] for record in records]) for arm in records[0]}
    control = [record[CONTROL][settings[CONTROL]]["test"] for record in records]
    rows = list[dict[str, Any]]()
    for arm, place in settings.items():
        runs = [record[arm][place] for record in records]
        test = [run["test"] for run in runs]
        found = None if arm == CONTROL else paired(test, control)
        words = (
            f"learning rate × {RATES[place]:.2g}" if arm == CONTROL else _setting(name, arm, place)
        )
        rows.append(
            {
                "problem": name,
                "arm": arm,
                "chosen": words,
                **{part: float(np.mean([run[part] for run in runs])) for part in runs[0]},
                "change": None if found is None else found.difference,
                "low": None if found is None else found.interval.low,
                "high": None if found is None else found.interval.high,
                "p": None if found is None else found.p_value,
            }
        )
    return rows


def _chosen(runs: Sequence[Sequence[Mapping[str, float | None]]]) -> int:
    """The setting with the lowest mean validation error; one that diverged is never chosen."""
    table = np.array(
        [
            [np.inf if one["validation"] is None else one["validation"] for one in row]
            for row in runs
        ]
    )
    return int(np.argmin(table.mean(0)))


def _setting(name: str, arm: str, place: int) -> str:
    remedy = (AUGMENTED[name] if arm == "augmentation" else COMMON[arm])[place]
    return f"{remedy.name}, {remedy.strength} {getattr(remedy, remedy.strength):g}"


def _verdict(row: Mapping[str, Any]) -> str:
    if row["p"] is None:
        return "—"
    if row["p"] >= 0.05:
        return "not shown"
    return "helps" if row["change"] < 0 else "harms"


def _claims(rows: Sequence[Mapping[str, Any]]) -> tuple[Claim, ...]:
    """Judge what the slides say of every remedy but weight averaging, which they leave out."""
    arms = dict.fromkeys(row["arm"] for row in rows if row["p"] is not None)
    verdicts = {arm: [_verdict(row) for row in rows if row["arm"] == arm] for arm in arms}
    return tuple(
        Claim.counted(f"{arm.capitalize()} helps.", told.count("helps"), len(told))
        for arm, told in verdicts.items()
        if arm != "weight averaging"
    )


def _judgments(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    told = list[str]()
    for name in NAMES:
        own = [row for row in rows if row["problem"] == name and row["p"] is not None]
        groups = {
            word: [row["arm"] for row in own if _verdict(row) == word]
            for word in ("helps", "harms", "not shown")
        }
        words = "; ".join(f"{word}: {', '.join(arms)}" for word, arms in groups.items() if arms)
        told += [f"{name}: {words}."] if own else []
    return told


def _chart(name: str, rows: Sequence[Mapping[str, Any]]) -> Bar:
    own = [row for row in rows if row["problem"] == name and row["p"] is not None]
    change, low, high = ([row[key] for row in own] for key in ("change", "low", "high"))
    arms = [row["arm"] for row in own]
    return Bar(
        title=f"Test error minus that of the control: {name}",
        y_label="change of the error",
        caption="Mean and 95 % interval over paired seeds; below zero, the remedy helps.",
        series=[Series(name="change", x=arms, y=change, low=low, high=high)],
    )
