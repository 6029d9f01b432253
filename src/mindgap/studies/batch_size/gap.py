"""Batch size against generalization gap on the embedded digits."""

from collections.abc import Sequence
from typing import Self

from mindgap.core import (
    Recipe,
    Record,
    Study,
    Table,
    Trial,
    holm,
    mean_interval,
    option,
    paired,
    spearman,
)
from mindgap.data import digits
from mindgap.data.noise import label_noise
from mindgap.nets import MLP
from mindgap.training.ensemble import ensemble

BUDGETS = ("epochs", "steps")
CLAIM = "Published claim (Keskar et al., 2017): the gap grows with the batch size, a rank correlation above zero."


class BatchSizeGap(Study):
    r"""Batch size against generalization gap, at an equal number of epochs and at an equal number of steps.

    Formula: $\mathrm{gap}(B) = \mathrm{err}_{test}(w_B) - \mathrm{err}_{train}(w_B)$

    Reading: Keskar et al. report that large batches generalize worse. A large batch takes fewer
    steps in the same number of epochs and so fits less; the rows of equal steps are the control for
    that.

    Assumes: An MLP 64-64-10 with SGD on the 8×8 digits. A share of all labels, train and test, is
    wrong, so that memorizing is possible and costs something.

    >>> len(BatchSizeGap().trials())
    12
    """

    method = ("E7",)
    cites = ("keskar2017large",)

    seeds: int = option(20, help="number of paired seeds", low=2)
    epochs: int = option(200, help="passes over the training data at equal epochs", low=1)
    learning_rate: float = option(
        0.05, help="step size of SGD; at 0.1 some seeds of batch size 16 do not fit", above=0
    )
    noise: float = option(
        0.1, help="share of the labels, train and test, that are made wrong", low=0, below=1
    )
    largest: int = option(512, help="largest batch size; sizes are 16, 32, … up to it", low=16)
    reference: int = option(
        64,
        help="batch size whose number of steps is the budget of equal steps, to a whole epoch",
        low=1,
    )

    def trials(self) -> Sequence[Trial]:
        """Every batch size under both budgets; the seeds of one are trained together."""
        sizes = [16 * 2**k for k in range(20) if 16 * 2**k <= self.largest]
        return [
            Trial(parameters={"batch_size": size, "budget": budget})
            for budget in BUDGETS
            for size in sizes
        ]

    def run(self, trial: Trial) -> Record:
        """Train all seeds and take the gap of each."""
        data = digits()
        labels, _ = label_noise(data.targets, self.noise, seed=0)
        assert data.test is not None
        test_labels, _ = label_noise(data.test[1], self.noise, seed=1)
        recipe = Recipe(
            model=lambda: MLP(widths=(64, 64, 10), activation="relu"),
            train=(data.inputs, labels),
            test=(data.test[0], test_labels),
            optimizer="sgd",
            learning_rate=self.learning_rate,
            batch_size=trial["batch_size"],
            epochs=self.epochs,
        )
        steps = -(-len(labels) // recipe.batch_size)
        if trial["budget"] == "steps":
            recipe = recipe.replace(
                epochs=round(self.epochs * -(-len(labels) // self.reference) / steps)
            )
        subjects = [member.subject() for member in ensemble(recipe, range(self.seeds))]
        return {
            "steps": steps * recipe.epochs,
            "train_error": [subject.mean_error("train") for subject in subjects],
            "test_error": [subject.mean_error("test") for subject in subjects],
            "train_loss": [subject.mean_loss("train") for subject in subjects],
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per batch size and budget, and what the ranks say."""
        rows = tuple(_row(trial, record) for trial, record in records)
        columns = (
            "budget",
            "batch size",
            "steps",
            "training error",
            "test error",
            "gap",
            "gap low",
            "gap high",
        )
        return Table(
            title="Batch size against generalization gap (8×8 digits, noisy labels)",
            columns=columns,
            rows=rows,
            notes=(
                CLAIM,
                *(note for budget in BUDGETS for note in _notes(budget, rows)),
                *_paired_notes(records),
            ),
            charts=(_chart(rows),),
        )

    def tiny(self) -> Self:
        """Two sizes, two seeds, few epochs."""
        return self.replace(seeds=2, epochs=8, largest=32)


def _row(trial: Trial, record: Record) -> tuple[object, ...]:
    gaps = _gaps(record)
    spread = mean_interval(gaps)
    train, test, gap = (
        sum(values) / len(values) for values in (record["train_error"], record["test_error"], gaps)
    )
    return (
        f"equal {trial['budget']}",
        trial["batch_size"],
        record["steps"],
        train,
        test,
        gap,
        spread.low,
        spread.high,
    )


def _gaps(record: Record) -> list[float]:
    return [
        test - train
        for test, train in zip(record["test_error"], record["train_error"], strict=True)
    ]


def _paired_notes(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    """The largest batch against the smallest, seed by seed, with Holm's correction over the budgets."""
    found = []
    for budget in BUDGETS:
        arms = [
            (trial["batch_size"], _gaps(record))
            for trial, record in records
            if trial["budget"] == budget
        ]
        if len(arms) > 1:
            (small, control), (large, treated) = min(arms), max(arms)
            found.append((budget, small, large, paired(treated, control)))
    corrected = holm([test.p_value for *_, test in found])
    return [
        f"At equal {budget}, gap at batch size {large} minus gap at {small}: "
        f"{test.difference:+.4f} {test.interval}, "
        f"p = {p_value:.2g} (paired over {test.pairs} seeds, Holm)."
        for (budget, small, large, test), p_value in zip(found, corrected, strict=True)
    ]


def _notes(budget: str, rows: tuple[tuple[object, ...], ...]) -> list[str]:
    chosen = [row for row in rows if row[0] == f"equal {budget}"]
    if len(chosen) < 3:
        return []
    rank = spearman([float(str(row[1])) for row in chosen], [float(str(row[5])) for row in chosen])
    return [
        f"At equal {budget} the rank correlation of batch size and mean gap is {rank:+.2f} over "
        f"{len(chosen)} sizes."
    ]


def _chart(rows: tuple[tuple[object, ...], ...]) -> dict[str, object]:
    series = []
    for budget in BUDGETS:
        chosen = [row for row in rows if row[0] == f"equal {budget}"]
        names = {"x": 1, "y": 5, "low": 6, "high": 7}
        series.append(
            {
                "name": f"equal {budget}",
                **{key: [row[place] for row in chosen] for key, place in names.items()},
            }
        )
    return {
        "kind": "line",
        "title": "Gap against batch size, mean and 95 % interval over seeds",
        "x_label": "batch size",
        "y_label": "generalization gap (error rate)",
        "x_scale": "log",
        "series": series,
    }
