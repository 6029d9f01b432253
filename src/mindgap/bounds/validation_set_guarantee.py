"""The validation-set guarantee in its classical (Bernstein) form."""

import math
from collections.abc import Mapping
from typing import Any

from mindgap.bounds.held_out import HeldOutBound
from mindgap.core import Subject, Terms, option


class ValidationSetGuarantee(HeldOutBound):
    r"""Bound the risk of the best of many models, chosen on held-out data, by Bernstein.

    Formula: $R(f) \le \hat R_{val}(f) + \frac{2 C \ln(|F|/\delta)}{3 n} + \sqrt{\frac{2 \gamma^2
    \ln(|F|/\delta)}{n}}$

    Reading: Grows with the logarithm of the number of models that were compared on the held-out
    data, and not with the number of weights. A few thousand held-out samples are therefore enough.

    Assumes: Independent held-out samples; at most ``hypotheses`` models were compared on them;
    ``magnitude`` bounds the loss's deviation from its mean and ``deviation`` its standard deviation
    (1 and 1 in the worst case of 0-1 loss). Test samples that are in the training data do not
    count.

    >>> guarantee = ValidationSetGuarantee(delta=0.1, hypotheses=1_000_000_000)
    >>> round(float(guarantee.evaluate(empirical=0.0, samples=10_000)), 10)
    0.069396461
    """

    method = ("K2",)
    cites = ("kawaguchi2017generalization",)

    hypotheses: int = option(
        1, help="number of models that were compared on the held-out data", low=1
    )

    def formula(
        self, *, empirical: float, samples: int, magnitude: float = 1.0, deviation: float = 1.0
    ) -> Terms:
        """Apply Bernstein's inequality with a union bound over the hypotheses."""
        term = math.log(self.hypotheses / self.delta) / samples
        linear, root = 2 * magnitude * term / 3, deviation * math.sqrt(2 * term)
        return Terms(empirical=empirical, complexity=linear + root, ceiling=magnitude)

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Take the error rate and the number of the test samples that count."""
        return {"empirical": self.rate(subject), "samples": len(self.unshared_errors(subject))}
