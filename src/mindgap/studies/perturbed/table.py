"""The table of the studies of PerturbedOPT: arms against their controls, and curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mindgap.core import (
    Bar,
    Chart,
    Claim,
    Line,
    Paired,
    Record,
    Series,
    Table,
    holm,
    mean_interval,
    paired,
)
from mindgap.studies.perturbed.arms import METHODS, PLAIN, Arm

COLUMNS = (
    *("arm", "chosen", "train", "validation", "test"),
    *("gap", "change", "low", "high", "p (Holm)"),
)
FRESH = "fresh"
CLAIM = (
    "The paper claims that PerturbedOPT lowers training accuracy, raises test accuracy and beats "
    "every dropout rate. It shows curves without numbers, so there is no column for the paper."
)
READING = (
    "Accuracies are in percent and differences in percentage points, means over {seeds} seeds. The "
    "change is the test accuracy minus that of the control with the same seed, with a 95 % "
    "interval over seeds on the same test data. The p-values are those of Student's t-test, "
    "corrected by Holm over all arms. The chosen setting of a method has the best mean validation "
    "accuracy. SAM takes two forward and backward passes per step, all other arms take one."
)
Runs = Mapping[str, Mapping[int, Record]]


def perturbed_table(
    title: str, arms: Sequence[Arm], runs: Runs, notes: Sequence[str], *, fresh: bool
) -> Table:
    """Tabulate the seeds that all arms have finished.

    Args:
        title: The title of the table.
        arms: The arms, in the order of the rows.
        runs: The records by arm and seed.
        notes: Notes of the study, after those of the table.
        fresh: Whether to show accuracy with recomputed batch-normalization statistics.
    """
    done = sorted(set.intersection(*(set(runs.get(arm.name, {})) for arm in arms)))
    columns = (*COLUMNS[:5], FRESH, *COLUMNS[5:]) if fresh else COLUMNS
    if len(done) < 2:
        return Table(
            title=title, columns=columns, rows=(), notes=("Fewer than two seeds are finished.",)
        )
    summary = Summary(arms, [{arm.name: runs[arm.name][seed] for arm in arms} for seed in done])
    rows = tuple(summary.row(arm, fresh) for arm in arms)
    facts = (
        READING.format(seeds=len(done)),
        summary.headline(),
        *summary.stopped(),
        *summary.undrawn(),
        CLAIM,
    )
    return Table(
        title=title,
        columns=columns,
        rows=rows,
        notes=(*facts, *notes),
        charts=summary.charts(),
        claims=summary.claims(),
    )


DATA = {"train": "training data", "validation": "validation data", "test": "test data"}


class Summary:
    """The runs of all arms with the same seeds, and what they show.

    Args:
        arms: The arms.
        runs: One mapping from arm to record per seed.
    """

    def __init__(self, arms: Sequence[Arm], runs: Sequence[Mapping[str, Record]]) -> None:
        self.arms, self.runs = arms, runs
        self.chosen = {method: self._best(method) for method in METHODS}
        self.tests = {
            arm.name: self.compare(arm.name, arm.control) for arm in arms if arm.name != arm.control
        }
        self.p_values = dict(
            zip(self.tests, holm([test.p_value for test in self.tests.values()]), strict=True)
        )

    def _best(self, method: str) -> str:
        """Return the candidate with the best mean validation accuracy, the first one in a tie."""
        names = [arm.name for arm in self.arms if arm.method == method]
        return max(names, key=lambda name: float(np.mean(self.final(name, "validation"))))

    def final(self, name: str, part: str) -> list[float]:
        """Return the final accuracies of an arm, one per seed."""
        return [run[name]["final"][part] for run in self.runs]

    def compare(self, name: str, other: str) -> Paired:
        """Compare the test accuracies of two arms, paired over seeds."""
        return paired(self.final(name, "test"), self.final(other, "test"))

    def row(self, arm: Arm, fresh: bool) -> tuple[Any, ...]:
        """Return the row of an arm."""
        train, validation, test = (
            float(np.mean(self.final(arm.name, part))) for part in ("train", "validation", "test")
        )
        renewed = (float(np.mean([run[arm.name]["fresh"] for run in self.runs])),) if fresh else ()
        found = self.tests.get(arm.name)
        change: tuple[Any, ...] = (None,) * 4
        if found is not None:
            change = (
                found.difference,
                found.interval.low,
                found.interval.high,
                self.p_values[arm.name],
            )
        mark = "yes" if arm.name in self.chosen.values() else None
        return (arm.name, mark, train, validation, test, *renewed, train - test, *change)

    def headline(self) -> str:
        """Compare the chosen PerturbedOPT with plain Adam and the other chosen arms."""
        own, others = self.chosen["PerturbedOPT"], [self.chosen[method] for method in METHODS[1:]]
        tests = [self.compare(own, other) for other in others]
        pairs = zip(others, tests, holm([test.p_value for test in tests]), strict=True)
        plain = self.tests[own]
        words = [
            f"minus {other}: {_change(test)}, p = {p_value:.2g}" for other, test, p_value in pairs
        ]
        fitted = [float(np.mean(self.final(name, "train"))) for name in (own, PLAIN)]
        return (
            f"The chosen PerturbedOPT has γ of {own.rpartition(' ')[2]}. Its test accuracy minus "
            f"that of {PLAIN}: {_change(plain)}, p = {self.p_values[own]:.2g}; {'; '.join(words)} "
            f"(Holm over these two). Its training accuracy is {fitted[0]:.1f} %, that of {PLAIN} "
            f"is {fitted[1]:.1f} %."
        )

    def claims(self) -> tuple[Claim, ...]:
        """Judge what the paper says of PerturbedOPT, with its chosen setting."""
        own, dropout = self.chosen["PerturbedOPT"], self.chosen["dropout"]
        tests = [
            paired(self.final(PLAIN, "train"), self.final(own, "train")),
            self.compare(own, PLAIN),
            self.compare(own, dropout),
        ]
        corrected = holm([test.p_value for test in tests])
        told = (
            "PerturbedOPT lowers training accuracy.",
            "It raises test accuracy.",
            "It beats dropout.",
        )
        return tuple(
            Claim.shown(text, test.difference > 0 and p_value < 0.05)
            for text, test, p_value in zip(told, tests, corrected, strict=True)
        )

    def stopped(self) -> list[str]:
        """Count the runs whose loss was no longer finite."""
        counts = {
            arm.name: sum(bool(run[arm.name]["stopped"]) for run in self.runs) for arm in self.arms
        }
        return [
            f"{name}: {count} of {len(self.runs)} runs diverged."
            for name, count in counts.items()
            if count
        ]

    def collapsed(self) -> list[str]:
        """List published arms with less than half the validation accuracy of plain Adam."""
        enough = float(np.mean(self.final(PLAIN, "validation"))) / 2
        names = [arm.name for arm in self.arms if arm.method == "published"]
        return [name for name in names if np.mean(self.final(name, "validation")) < enough]

    def undrawn(self) -> list[str]:
        """Name the arms that the charts leave out."""
        return [
            f"The curves leave out {name}, whose validation accuracy of "
            f"{np.mean(self.final(name, 'validation')):.1f} % would compress all other curves."
            for name in self.collapsed()
        ]

    def charts(self) -> tuple[Chart, ...]:
        """Chart the differences of the chosen arms, then their accuracies by epoch."""
        return self._bars(), *(self._curves(part) for part in ("train", "validation", "test"))

    def _bars(self) -> Bar:
        tests = {name: self.tests[name] for name in self.chosen.values()}
        series = Series(
            name=f"minus {PLAIN}",
            x=list(tests),
            y=[test.difference for test in tests.values()],
            low=[test.interval.low for test in tests.values()],
            high=[test.interval.high for test in tests.values()],
        )
        return Bar(
            title=f"Test accuracy of the chosen arms minus that of {PLAIN}",
            caption="Mean and 95 % interval over seeds.",
            x_label="arm",
            y_label="points",
            series=[series],
        )

    def _curves(self, part: str) -> Line:
        published = [
            arm.name
            for arm in self.arms
            if arm.method == "published" and arm.name not in self.collapsed()
        ]
        drawn = [PLAIN, *self.chosen.values(), *published]
        return Line(
            title=f"Accuracy by epoch on {DATA[part]}, mean and 95 % interval over seeds",
            x_label="epoch",
            y_label=f"{part} accuracy, %",
            series=[self._curve(name, part) for name in drawn],
        )

    def _curve(self, name: str, part: str) -> Series:
        by_epoch = list(zip(*(run[name]["curves"][part] for run in self.runs), strict=True))
        spread = [mean_interval(values) for values in by_epoch]
        return Series(
            name=name,
            x=self.runs[0][name]["epochs"],
            y=[float(np.mean(values)) for values in by_epoch],
            low=[interval.low for interval in spread],
            high=[interval.high for interval in spread],
        )


def _change(test: Paired) -> str:
    return f"{test.difference:+.2f} [{test.interval.low:+.2f}, {test.interval.high:+.2f}] points"
