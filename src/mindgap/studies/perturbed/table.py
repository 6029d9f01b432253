"""The table of the studies of PerturbedOPT: arms against their controls, the chosen ones, and the curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mindgap.core import Paired, Record, Table, holm, mean_interval, paired
from mindgap.studies.perturbed.arms import METHODS, PLAIN, Arm

COLUMNS = (
    "arm",
    "chosen",
    "train",
    "validation",
    "test",
    "gap",
    "change",
    "low",
    "high",
    "p (Holm)",
)
FRESH = "fresh"
CLAIM = (
    "The paper's claim: with PerturbedOPT training accuracy falls and test accuracy rises, and it "
    "beats every dropout "
    "rate. It gives curves without numbers, so none of ours can stand beside one of its own."
)
READING = (
    "Accuracy in percent and differences in points, means over {seeds} seeds. The change is that "
    "of test accuracy "
    "from the control with the same seed, with a 95 % interval over seeds on the same test data; "
    "p-values are "
    "Student's, by Holm over all arms. Chosen is the best of a method's three settings by mean "
    "validation accuracy. "
    "SAM takes two forward and backward passes a step, all others one."
)
Runs = Mapping[str, Mapping[int, Record]]


def perturbed_table(
    title: str, arms: Sequence[Arm], runs: Runs, notes: Sequence[str], *, fresh: bool
) -> Table:
    """The table of the seeds that all arms have finished; the ``fresh`` column is for nets with batch normalization."""
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
        title=title, columns=columns, rows=rows, notes=(*facts, *notes), charts=summary.charts()
    )


class Summary:
    """What the runs of all arms with the same seeds say."""

    def __init__(self, arms: Sequence[Arm], runs: Sequence[Mapping[str, Record]]) -> None:
        self.arms, self.runs = arms, runs
        self.chosen = {method: self._best(method) for method in METHODS}
        self.tests = {
            arm.name: self.compare(arm.name, arm.control) for arm in arms if arm.name != arm.control
        }  # fmt: skip
        self.p_values = dict(
            zip(self.tests, holm([test.p_value for test in self.tests.values()]), strict=True)
        )

    def _best(self, method: str) -> str:
        """The candidate with the best mean validation accuracy; the first of equal ones."""
        names = [arm.name for arm in self.arms if arm.method == method]
        return max(names, key=lambda name: float(np.mean(self.final(name, "validation"))))

    def final(self, name: str, part: str) -> list[float]:
        """Accuracy at the end, seed by seed."""
        return [run[name]["final"][part] for run in self.runs]

    def compare(self, name: str, other: str) -> Paired:
        """Test accuracy of two arms, seed by seed."""
        return paired(self.final(name, "test"), self.final(other, "test"))

    def row(self, arm: Arm, fresh: bool) -> tuple[Any, ...]:
        """An arm's numbers."""
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
        """The chosen PerturbedOPT against plain Adam and the other chosen ones."""
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
            f"that of {PLAIN}: "
            f"{_change(plain)}, p = {self.p_values[own]:.2g}; {'; '.join(words)} (Holm over these "
            "two). Its train "
            f"accuracy is {fitted[0]:.1f} %, that of {PLAIN} {fitted[1]:.1f} %."
        )

    def stopped(self) -> list[str]:
        """Runs whose loss left the finite numbers."""
        counts = {
            arm.name: sum(bool(run[arm.name]["stopped"]) for run in self.runs) for arm in self.arms
        }
        return [
            f"{name}: {count} of {len(self.runs)} runs diverged."
            for name, count in counts.items()
            if count
        ]

    def collapsed(self) -> list[str]:
        """Arms with the published numbers that do not get half as far as plain Adam."""
        enough = float(np.mean(self.final(PLAIN, "validation"))) / 2
        names = [arm.name for arm in self.arms if arm.method == "published"]
        return [name for name in names if np.mean(self.final(name, "validation")) < enough]

    def undrawn(self) -> list[str]:
        """What the charts leave out."""
        return [
            f"The curves leave out {name}, whose validation accuracy of "
            f"{np.mean(self.final(name, 'validation')):.1f} % would flatten all others."
            for name in self.collapsed()
        ]

    def charts(self) -> tuple[Mapping[str, Any], ...]:
        """Differences of the chosen arms, then train, validation and test accuracy by epoch of the chosen ones."""
        return self._bars(), *(self._curves(part) for part in ("train", "validation", "test"))

    def _bars(self) -> Mapping[str, Any]:
        tests = {name: self.tests[name] for name in self.chosen.values()}
        series = {
            "x": list(tests),
            "y": [test.difference for test in tests.values()],
            "low": [test.interval.low for test in tests.values()],
            "high": [test.interval.high for test in tests.values()],
        }
        return {
            "kind": "bar",
            "title": f"Test accuracy of the chosen arms minus that of {PLAIN}, mean and 95 % interval over seeds",
            "x_label": "arm",
            "y_label": "points",
            "series": [{"name": f"minus {PLAIN}", **series}],
        }

    def _curves(self, part: str) -> Mapping[str, Any]:
        published = [
            arm.name
            for arm in self.arms
            if arm.method == "published" and arm.name not in self.collapsed()
        ]
        drawn = [PLAIN, *self.chosen.values(), *published]
        return {
            "kind": "line",
            "title": f"Accuracy by epoch on {part} data, mean and 95 % interval over seeds",
            "x_label": "epoch",
            "y_label": f"{part} accuracy, %",
            "series": [self._curve(name, part) for name in drawn],
        }

    def _curve(self, name: str, part: str) -> Mapping[str, Any]:
        by_epoch = list(zip(*(run[name]["curves"][part] for run in self.runs), strict=True))
        spread = [mean_interval(values) for values in by_epoch]
        return {
            "name": name,
            "x": self.runs[0][name]["epochs"],
            "y": [float(np.mean(values)) for values in by_epoch],
            "low": [interval.low for interval in spread],
            "high": [interval.high for interval in spread],
        }


def _change(test: Paired) -> str:
    return f"{test.difference:+.2f} [{test.interval.low:+.2f}, {test.interval.high:+.2f}] points"
