"""The error of the label that the model gets wrong most often."""

from mindgap.core import (
    Bar,
    Estimate,
    Measure,
    Series,
    Subject,
    Undefined,
    Which,
    align,
    option,
    proportion_interval,
)
from mindgap.core.chart.numbers import percent

MOST_LABELS = 25  # bars whose names can still be read


class WorstLabelError(Measure):
    r"""Error rate of the label that the model gets wrong most often, of several per sample.

    Formula: $\max_l \frac{1}{n} \left| \{ i : [f(x_i)_l > 0] \neq y_{il} \} \right|$

    Reading: The error of a model with several labels is the share of all its yes/no answers that
    are wrong. A rare label hardly moves this mean. Compare each label's error with how often the
    label is present: always answering "no" is wrong exactly that often. ``samples`` is the share
    of samples with at least one wrong label.

    Assumes: Yes/no labels with one logit each. Test data are used if there are any.

    >>> import torch
    >>> logits = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> data = logits, torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    >>> result = WorstLabelError()(Subject(torch.nn.Identity(), "bce", data))
    >>> float(result), result.terms["labels"], result.terms["samples"]
    (0.5, 0.25, 0.5)
    """

    method = ("K1",)
    cites = ("tsoumakas2007multi",)
    direction = "lower"
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    level: float = option(0.95, help="level of the intervals of the chart", above=0, below=1)

    def compute(self, subject: Subject) -> Estimate:
        """Return the largest rate, and errors and frequencies of all labels."""
        if subject.task != "multilabel":
            raise Undefined(f"needs yes/no labels, this is a {subject.task}")
        which: Which = "train" if subject.test is None else "test"
        predictions = subject.predictions(which)
        targets = align(predictions, subject.targets(which))
        wrong = (predictions != targets).reshape(len(targets), -1).cpu()
        present = targets.reshape(len(targets), -1).double().mean(0).tolist()
        counts = wrong.sum(0).tolist()
        names = [
            subject.classes[k] if k < len(subject.classes) else f"label {k}"
            for k in range(len(counts))
        ]
        return Estimate(
            value=max(counts) / len(wrong),
            terms={
                "labels": float(wrong.double().mean()),
                "samples": float(wrong.any(1).double().mean()),
            },
            details={"which": which, "names": names, "wrong": counts, "present": present},
            charts=(self._chart(which, names, counts, present, len(wrong)),),
        )

    def _chart(
        self, which: Which, names: list[str], counts: list[int], present: list[float], total: int
    ) -> Bar:
        worst = sorted(sorted(range(len(names)), key=lambda k: -counts[k])[:MOST_LABELS])
        ends = [proportion_interval(counts[k], total, self.level) for k in worst]
        shown = [names[k] for k in worst]
        few = "" if len(worst) == len(names) else f"The {MOST_LABELS} worst labels. "
        return Bar(
            title=f"Error by label ({'test' if which == 'test' else 'training'} data)",
            caption=f"{few}Share of wrong answers, with the {percent(self.level)} interval, and "
            "share of samples that have the label.",
            x_label="label",
            y_label="share of samples",
            percent=True,
            terminal=True,
            series=[
                Series(
                    name="wrong",
                    x=shown,
                    y=[counts[k] / total for k in worst],
                    low=[end.low for end in ends],
                    high=[end.high for end in ends],
                ),
                Series(name="has the label", x=shown, y=[present[k] for k in worst]),
            ],
        )
