"""The error of the class that the model gets wrong most often."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Chart,
    Estimate,
    Heatmap,
    Measure,
    Sample,
    Series,
    Subject,
    Which,
    option,
    proportion_interval,
)
from mindgap.core.chart.numbers import percent
from mindgap.ops.samples import as_shown, class_name, shown_inputs

MOST_IN_CONFUSION = 20  # beyond it the squares are too small to read
MOST_IN_CELL, MOST_SHOWN = 8, 120  # samples behind a cell, and behind all
MOST_CLASSES = 25  # bars whose names can still be read


class WorstClassError(Measure):
    r"""Error rate of the class that the model gets wrong most often.

    Formula: $\max_c \frac{\left| \{ i : y_i = c, \; \arg\max_k f(x_i)_k \neq c \} \right|}{\left|
    \{ i : y_i = c \} \right|}$

    Reading: One mean hides much. Far above the mean error, the model fails a part of its users. Two
    classes that are often taken for each other may need better labels or more samples. The largest
    of many rates is large by chance alone if classes are small: look at the intervals.

    Assumes: A classification with one logit per class. Test data are used if there are any.

    >>> logits = torch.tensor([[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    >>> data = logits, torch.tensor([0, 0, 1, 1])
    >>> result = WorstClassError()(Subject(torch.nn.Identity(), "cross_entropy", data))
    >>> float(result), result.details["wrong"]
    (0.5, [0, 1])
    """

    method = ("K1",)
    cites = ("sagawa2020distributionally",)
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    level: float = option(0.95, help="level of the intervals of the chart", above=0, below=1)

    def compute(self, subject: Subject) -> Estimate:
        """Return the largest rate, the counts of all classes, and their confusions."""
        which: Which = "train" if subject.test is None else "test"
        number, targets = subject.outputs(which).shape[1], subject.targets(which).cpu()
        predictions = subject.predictions(which).cpu()
        wrong = torch.bincount(targets[targets != predictions], minlength=number)
        total = torch.bincount(targets, minlength=number)
        names = [class_name(subject.classes, k) for k in range(number)]
        confusion = _confusion(targets, predictions, number)
        return Estimate(
            value=float((wrong[total > 0].double() / total[total > 0]).max()),
            details={
                "which": which,
                "names": names,
                "wrong": wrong.tolist(),
                "total": total.tolist(),
                "confusion": confusion,
            },
            charts=self._charts(
                which,
                names,
                wrong.tolist(),
                total.tolist(),
                confusion,
                _mistaken(subject, which) if confusion else (),
            ),
        )

    def _charts(
        self,
        which: Which,
        names: list[str],
        wrong: list[int],
        total: list[int],
        confusion: list[list[int]],
        samples: Sequence[Sample],
    ) -> tuple[Chart, ...]:
        shown = [k for k, count in enumerate(total) if count]
        if len(shown) > MOST_CLASSES:
            shown = sorted(shown, key=lambda k: -wrong[k] / total[k])[:MOST_CLASSES]
        ends = [proportion_interval(wrong[k], total[k], self.level) for k in shown]
        data = "test data" if which == "test" else "training data"
        share = "Share of wrong answers among a class's samples"
        errors = Bar(
            title=f"Error by class ({data})",
            caption=f"The {MOST_CLASSES} worst classes."
            if len(shown) < sum(map(bool, total))
            else f"{share}, with the {percent(self.level)} interval.",
            x_label="true class",
            y_label="error rate",
            percent=True,
            series=[
                Series(
                    name=data,
                    x=[names[k] for k in shown],
                    y=[wrong[k] / total[k] for k in shown],
                    low=[end.low for end in ends],
                    high=[end.high for end in ends],
                )
            ],
            horizontal=False,
            wide=not confusion,
        )
        return (errors, _mistakes(names, confusion, samples)) if confusion else (errors,)


def _confusion(targets: Tensor, predictions: Tensor, number: int) -> list[list[int]]:
    """Count how often a class (row) was taken for another (column), if there are few."""
    if number > MOST_IN_CONFUSION:
        return []
    counts = torch.bincount(targets * number + predictions, minlength=number * number)
    found: list[list[int]] = counts.view(number, number).tolist()
    return found


def _mistaken(subject: Subject, which: Which) -> list[Sample]:
    """Return the first samples of every kind of mistake; fewer each if there are many kinds."""
    targets, predictions = subject.targets(which).cpu(), subject.predictions(which).cpu()
    mistakes: dict[tuple[int, int], list[int]] = {}
    for place in (targets != predictions).nonzero().flatten().tolist():
        mistakes.setdefault((int(targets[place]), int(predictions[place])), []).append(place)
    each = max(1, min(MOST_IN_CELL, MOST_SHOWN // max(len(mistakes), 1)))
    found = [(cell, place) for cell, places in mistakes.items() for place in places[:each]]
    if not found:
        return []
    taken = subject.split(which).take(torch.tensor([place for _, place in found]))
    shown = as_shown(shown_inputs(taken.inputs))
    return [
        Sample(
            image=told.get("image", ""),
            facts={"no.": str(place), **{k: v for k, v in told.items() if k != "image"}},
            cell=cell,
        )
        for (cell, place), told in zip(found, shown, strict=True)
    ]


def _mistakes(names: list[str], confusion: list[list[int]], samples: Sequence[Sample]) -> Heatmap:
    """Right answers are left out, for they would drown the mistakes."""
    return Heatmap(
        title="What is taken for what",
        caption="Number of mistakes; right answers are left out. A click on a number shows samples.",
        x_label="predicted class",
        y_label="true class",
        z_label="mistakes",
        x=names,
        y=names,
        z=[
            [None if i == j else count for j, count in enumerate(row)]
            for i, row in enumerate(confusion)
        ],
        samples=samples,
        wide=False,
    )
