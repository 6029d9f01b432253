"""The margin on the training data."""

import math

from torch import Tensor

from mindgap.core import Estimate, Measure, Subject, option


class Margin(Measure):
    r"""A low quantile of the margins of the training samples.

    Formula: $Q_q\left\{ f(x_i)_{y_i} - \max_{k \neq y_i} f(x_i)_k \right\}$

    Reading: Large and positive means that all but a few training samples are classified with room
    to spare. Negative means that more than the quantile's share of them is wrong. Not normalized:
    scaling the last layer scales it.

    Assumes: A classification with one logit per class.

    >>> Margin().quantile
    0.1
    """

    method = ("E10",)
    cites = ("bartlett2017spectrally", "jiang2020fantastic")
    direction = "higher"
    needs = frozenset({"classification"})
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    quantile: float = option(0.1, help="share of samples that may lie below", above=0, high=1)

    def compute(self, subject: Subject) -> Estimate:
        """The quantile, with the median and the share of negative margins beside it."""
        margins = subject.margins("train").double()
        wrong = float((margins <= 0).double().mean())
        terms = {"median": at(margins, 0.5), "minimum": float(margins.min()), "not_positive": wrong}
        return Estimate(value=at(margins, self.quantile), terms=terms)


def at(values: Tensor, quantile: float) -> float:
    """The smallest value below or at which lies the quantile's share: no interpolation between samples."""
    place = max(math.ceil(quantile * len(values) - 1e-9), 1)
    return float(values.kthvalue(place).values)
