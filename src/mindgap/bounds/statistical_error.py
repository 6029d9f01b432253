"""The statistical error of a fixed model."""

import math
from collections.abc import Mapping
from typing import Any

from mindgap.bounds.held_out import HeldOutBound
from mindgap.core import Subject, Terms


class StatisticalError(HeldOutBound):
    r"""Bound how far the error on n independent samples can be from the risk of a fixed model.

    Formula: $R(f) \le \hat R_n(f) + \lVert \ell \rVert_\infty \sqrt{\frac{2 \ln(2/\delta)}{n}}$

    Reading: What it costs to see n samples instead of all. It holds in both directions at once,
    which makes it slightly looser than one-sided bounds. The binomial tail is tighter for error
    rates.

    Assumes: The model does not depend on the samples (so test data, not training data), the samples
    are independent, and the loss lies in [-magnitude, magnitude]. Test samples that are in the
    training data do not count.

    >>> round(float(StatisticalError(delta=0.05).evaluate(empirical=0.0, samples=1000)), 6)
    0.085894
    """

    method = ("S6",)
    cites = ("scaman_stability", "hoeffding1963probability")

    def formula(self, *, empirical: float, samples: int, magnitude: float = 1.0) -> Terms:
        """Apply Hoeffding's inequality to a loss in [-magnitude, magnitude]."""
        complexity = magnitude * math.sqrt(2 * math.log(2 / self.delta) / samples)
        return Terms(empirical=empirical, complexity=complexity, ceiling=magnitude)

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Take the error rate and the number of the test samples that count."""
        return {"empirical": self.rate(subject), "samples": len(self.unshared_errors(subject))}
