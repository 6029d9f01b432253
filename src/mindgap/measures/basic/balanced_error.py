"""The error that counts every class alike."""

from collections.abc import Sequence

import torch

from mindgap.core import Bar, Estimate, Measure, Series, Subject, Which
from mindgap.ops.samples import class_name

MOST_CLASSES = 25  # bars whose names can still be read


class BalancedError(Measure):
    r"""Mean of the error rates of all classes, however many samples each of them has.

    Formula: $1 - \frac{1}{|C|} \sum_{c \in C} \mathrm{recall}_c, \qquad \mathrm{recall}_c =
    \frac{\left| \{ i : y_i = c = \arg\max_k f(x_i)_k \} \right|}{\left| \{ i : y_i = c \} \right|}$

    Reading: Far above the error rate, the model does well on frequent classes and badly on rare
    ones. Predicting the majority class gives $1 - 1/|C|$. The chart shows which share of a class is
    found (recall) and which share of the answers "this class" is right (precision).

    Assumes: A classification with one logit per class. Classes without samples are left out. Test
    data are used if there are any.

    >>> logits = torch.tensor([[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [3.0, 0.0]])
    >>> data = logits, torch.tensor([0, 0, 0, 1])
    >>> result = BalancedError()(Subject(torch.nn.Identity(), "cross_entropy", data))
    >>> float(result), result.terms["error"]
    (0.5, 0.25)
    """

    method = ("K1",)
    cites = ("brodersen2010balanced",)
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean error over classes, with recall and precision of each."""
        which: Which = "train" if subject.test is None else "test"
        number, targets = subject.outputs(which).shape[1], subject.targets(which).cpu()
        predictions = subject.predictions(which).cpu()
        right, total, answered = (
            torch.bincount(labels, minlength=number).double()
            for labels in (targets[targets == predictions], targets, predictions)
        )
        there = (total > 0).nonzero().flatten().tolist()
        names = [class_name(subject.classes, k) for k in there]
        recall = (right / total)[there]
        precision = [float(right[k] / answered[k]) if answered[k] else None for k in there]
        return Estimate(
            value=float(1 - recall.mean()),
            terms={"error": subject.mean_error(which)},
            details={
                "which": which,
                "names": names,
                "recall": recall.tolist(),
                "precision": precision,
            },
            charts=(_chart(which, names, recall.tolist(), precision),),
        )


def _chart(
    which: Which, names: list[str], recall: list[float], precision: list[float | None]
) -> Bar:
    worst = sorted(sorted(range(len(names)), key=recall.__getitem__)[:MOST_CLASSES])
    found: dict[str, Sequence[float | None]] = {"recall": recall, "precision": precision}
    return Bar(
        title=f"Recall and precision by class ({'test' if which == 'test' else 'training'} data)",
        caption="A class that was never predicted has no precision."
        if len(worst) == len(names)
        else f"The {MOST_CLASSES} classes of lowest recall.",
        x_label="class",
        y_label="share",
        percent=True,
        terminal=True,
        series=[
            Series(name=name, x=[names[k] for k in worst], y=[values[k] for k in worst])
            for name, values in found.items()
        ],
    )
