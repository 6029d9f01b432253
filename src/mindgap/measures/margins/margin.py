"""The margin on the training data."""

import math

from torch import Tensor

from mindgap.core import Estimate, Histogram, Measure, Subject, option


class Margin(Measure):
    r"""A low quantile of the margins of the training samples.

    Formula: $Q_q\left\{ f(x_i)_{y_i} - \max_{k \neq y_i} f(x_i)_k \right\}$

    Reading: Large and positive means that all but a few training samples are classified with room
    to spare. Negative means that more than the quantile's share of them is wrong. Not normalized:
    scaling the last layer scales it.

    Assumes: A classification with one logit per class.

    >>> import torch
    >>> data = torch.tensor([[3.0, 1.0], [0.0, 5.0], [2.0, 2.5]]), torch.tensor([0, 1, 0])
    >>> float(Margin(quantile=0.5)(Subject(torch.nn.Identity(), "cross_entropy", data)))
    2.0
    """

    method = ("E10",)
    cites = ("bartlett2017spectrally", "jiang2020fantastic")
    direction = "higher"
    needs = frozenset({"classification"})
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    quantile: float = option(0.1, help="share of samples that may lie below", above=0, high=1)

    def compute(self, subject: Subject) -> Estimate:
        """Return the quantile, the quartiles, the share of negative margins, and all margins."""
        margins = subject.margins("train").double()
        wrong = float((margins <= 0).double().mean())
        quartiles = {"first_quartile": at(margins, 0.25), "median": at(margins, 0.5)}
        terms = {**quartiles, "third_quartile": at(margins, 0.75)}
        terms |= {"minimum": float(margins.min()), "not_positive": wrong}
        every = {"training data": margins}
        every |= {} if subject.test is None else {"test data": subject.margins("test")}
        chart = Histogram.of(
            every,
            title="Margins of all samples",
            caption=(
                "Logit of the true class minus the largest other: left of zero the answer is wrong. "
                "The outermost bins also count what lies beyond them."
            ),
            x_label="margin (difference of logits)",
            y_label="share of samples (± 1 s.e.)",
            shares=True,
        )
        return Estimate(value=at(margins, self.quantile), terms=terms, charts=(chart,))


def at(values: Tensor, quantile: float) -> float:
    """Return the smallest value with the quantile's share at or below it, not interpolated."""
    place = max(math.ceil(quantile * len(values) - 1e-9), 1)
    return float(values.kthvalue(place).values)
