"""The exact held-out bound for error rates."""

from collections.abc import Mapping
from typing import Any

from mindgap.bounds.held_out import HeldOutBound
from mindgap.core import InputError, Subject, Terms, binomial_tail_inverse, option


class BinomialTail(HeldOutBound):
    r"""Bound the error rate exactly, by inverting the binomial tail of the held-out errors.

    Formula: $R(f) \le \max\left\{ p : \sum_{i=0}^{k} \binom{n}{i} p^i (1-p)^{n-i} \ge
    \frac{\delta}{|F|} \right\}$

    Reading: The largest error rate under which so few held-out errors still have probability δ. No
    other bound that uses only the number of held-out errors is tighter. Compare it with the
    classical bound to see what inequalities cost.

    Assumes: Independent held-out samples, 0-1 loss, and at most ``hypotheses`` models compared on
    them. Test samples that are in the training data do not count.

    >>> round(float(BinomialTail(delta=0.05).evaluate(errors=0, samples=100)), 6)
    0.029513
    """

    method = ("K2",)
    cites = ("langford2005tutorial",)
    needs = frozenset({"test", "classification"})

    hypotheses: int = option(
        1, help="number of models that were compared on the held-out data", low=1
    )

    def formula(self, *, errors: int, samples: int) -> Terms:
        """Invert the binomial tail, with a union bound over the hypotheses."""
        if not 0 <= errors <= samples:
            raise InputError(
                f"errors must be from 0 to {samples} (the number of samples), got {errors}. "
                "Correct it."
            )
        bound = binomial_tail_inverse(errors, samples, self.delta / self.hypotheses)
        return Terms(empirical=errors / samples, complexity=bound - errors / samples)

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Count the test samples that are not in the training data, and the errors on them."""
        errors = self.unshared_errors(subject)
        return {"errors": int(errors.sum()), "samples": len(errors)}
