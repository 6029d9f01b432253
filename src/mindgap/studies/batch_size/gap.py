"""Batch size against generalization gap on the embedded digits."""

from collections.abc import Sequence
from typing import Any, Self

from mindgap.core import (
    Claim,
    Line,
    Paired,
    Recipe,
    Record,
    Series,
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
CLAIM = (
    "Published claim (Keskar et al., 2017): the gap grows with the batch size, so the rank "
    "correlation is above zero."
)


class BatchSizeGap(Study):
    r"""Batch size against generalization gap, at equal epochs and at equal steps.

    Formula: $\mathrm{gap}(B) = \mathrm{err}_{test}(w_B) - \mathrm{err}_{train}(w_B)$

    Reading: Keskar et al. report that large batches generalize worse. With large batches, training
    takes fewer steps in the same number of epochs and fits less. The rows at equal steps control
    for that.

    Assumes: A 64-64-10 MLP trained with SGD on the 8×8 digits. A share of the training and test
    labels is wrong, so that memorizing them increases the test error.

    >>> len(BatchSizeGap().trials())
    12
    """

    method = ("E7",)
    cites = ("keskar2017large",)
    reproduces = ("expressivity: Batch size",)

    seeds: int = option(20, help="number of paired seeds", low=2)
    epochs: int = option(200, help="passes over the training data at equal epochs", low=1)
    learning_rate: float = option(
        0.05, help="learning rate of SGD; at 0.1 some seeds with batch size 16 do not fit", above=0
    )
    noise: float = option(
        0.1, help="share of the training and test labels that are made wrong", low=0, below=1
    )
    largest: int = option(512, help="largest batch size; the sizes are 16, 32, … up to it", low=16)
    reference: int = option(
        64,
        help="batch size whose number of steps sets the equal-steps budget, rounded to epochs",
        low=1,
    )

    def trials(self) -> Sequence[Trial]:
        """One trial per budget and batch size; all its seeds are trained together."""
        sizes = [16 * 2**k for k in range(20) if 16 * 2**k <= self.largest]
        return [
            Trial(parameters={"batch_size": size, "budget": budget})
            for budget in BUDGETS
            for size in sizes
        ]

    def run(self, trial: Trial) -> Record:
        """Train all seeds and measure the gap of each."""
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
        """One row per budget and batch size, with rank correlations in the notes."""
        rows = tuple(_row(trial, record) for trial, record in records)
        columns = (
            *("budget", "batch size", "steps", "training error", "test error"),
            *("gap", "gap low", "gap high"),
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
            claims=tuple(
                Claim.shown(
                    "The gap grows with the batch size, at equal epochs.",
                    test.difference > 0 and p_value < 0.05,
                )
                for budget, _, _, test, p_value in _paired(records)
                if budget == "epochs"
            ),
        )

    def tiny(self) -> Self:
        """Use two sizes, two seeds and few epochs."""
        return self.replace(seeds=2, epochs=3, largest=32)


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


def _paired(
    records: Sequence[tuple[Trial, Record]],
) -> list[tuple[str, int, int, Paired, float]]:
    """Compare the largest batch with the smallest, paired over seeds, corrected by Holm."""
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
    return [(*one, p_value) for one, p_value in zip(found, corrected, strict=True)]


def _paired_notes(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    return [
        f"At equal {budget}, gap at batch size {large} minus gap at {small}: "
        f"{test.difference:+.4f} {test.interval}, "
        f"p = {p_value:.2g} (paired over {test.pairs} seeds, Holm)."
        for budget, small, large, test, p_value in _paired(records)
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


def _chart(rows: tuple[tuple[Any, ...], ...]) -> Line:
    series = []
    for budget in BUDGETS:
        chosen = [row for row in rows if row[0] == f"equal {budget}"]
        x, y, low, high = ([row[place] for row in chosen] for place in (1, 5, 6, 7))
        series.append(Series(name=f"equal {budget}", x=x, y=y, low=low, high=high))
    return Line(
        title="Gap against batch size, mean and 95 % interval over seeds",
        x_label="batch size",
        y_label="generalization gap (error rate)",
        x_scale="log",
        series=series,
    )
