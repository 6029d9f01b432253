"""The held-out bound by inverting the binary KL divergence."""

import math
from collections.abc import Mapping
from typing import Any

from mindgap.bounds.held_out import HeldOutBound
from mindgap.core import InputError, Subject, Terms, kl_inverse, option


class KlInverse(HeldOutBound):
    r"""Bound the risk by inverting the binary KL divergence from the held-out error (Chernoff).

    Formula: $R(f) \le \max\left\{ p : \mathrm{kl}\left( \hat R_{val}(f) \,\Vert\, p \right)
    \le \frac{\ln(|F|/\delta)}{n} \right\}$

    Reading: The largest risk whose divergence from the held-out error is within the budget. Nearly
    as tight as the exact binomial tail, and good for any loss in [0, 1], not only for errors.

    Assumes: Independent held-out samples, a loss in [0, 1], and at most ``hypotheses`` models
    compared on them. Test samples that are in the training data do not count.

    >>> round(float(KlInverse(delta=0.05).evaluate(empirical=0.0, samples=100)), 6)
    0.029513
    """

    method = ("K2",)
    cites = ("langford2005tutorial",)

    hypotheses: int = option(
        1, help="number of models that were compared on the held-out data", low=1
    )

    def formula(self, *, empirical: float, samples: int) -> Terms:
        """Compute the upper end of the kl ball."""
        if not 0 <= empirical <= 1:
            raise InputError(
                f"empirical must be a number from 0 to 1, got {empirical}. Rescale the loss."
            )
        bound = kl_inverse(empirical, math.log(self.hypotheses / self.delta) / samples)
        return Terms(empirical=empirical, complexity=bound - empirical)

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Take the error rate and the number of the test samples that count."""
        return {"empirical": self.rate(subject), "samples": len(self.unshared_errors(subject))}
