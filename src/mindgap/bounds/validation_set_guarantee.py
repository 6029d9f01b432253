"""The validation-set guarantee in its classical (Bernstein) form."""

import math
from collections.abc import Mapping
from typing import Any

from mindgap.bounds.held_out import HeldOutBound
from mindgap.core import Subject, Terms, option
from mindgap.ops.concentration import bernstein


class ValidationSetGuarantee(HeldOutBound):
    r"""Bound the risk of the best of many models, chosen on held-out data, by Bernstein.

    Formula: $R(f) \le \hat R_{val}(f) + \frac{2 C \ln(|F|/\delta)}{3 n} + \sqrt{\frac{2 \gamma^2
    \ln(|F|/\delta)}{n}}$

    Reading: Grows with the logarithm of the number of models that were compared on the held-out
    data, and not with the number of weights. A few thousand held-out samples are therefore enough.
    This is the printed form; ``exact_inversion`` inverts Bernstein's inequality exactly and is
    smaller.

    Assumes: Independent held-out samples; at most ``hypotheses`` models were compared on them;
    ``magnitude`` bounds the loss's deviation from its mean and ``deviation`` its standard deviation
    (1 and 1 at worst; for 0-1 loss the deviation is at most 1/2). Test samples that are in the training data do not
    count.

    >>> guarantee = ValidationSetGuarantee(delta=0.1, hypotheses=1_000_000_000)
    >>> round(float(guarantee.evaluate(empirical=0.0, samples=10_000)), 10)
    0.069396461
    >>> result = guarantee.evaluate(empirical=0.0, samples=10_000)
    >>> round(result.terms["exact_inversion"], 4)
    0.0686
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
        exact = bernstein(
            samples, self.delta / self.hypotheses, magnitude=magnitude, variance=deviation**2
        )
        return Terms(
            empirical=empirical,
            complexity=linear + root,
            ceiling=magnitude,
            others={"exact_inversion": empirical + exact},
        )

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Take the error rate and the number of the test samples that count."""
        return {"empirical": self.rate(subject), "samples": len(self.unshared_errors(subject))}
