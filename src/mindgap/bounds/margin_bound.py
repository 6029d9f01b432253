"""What the margin bounds share: margins and norms that may be chosen after training."""

import abc
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mindgap.core import Bound, Subject, Terms, Undefined

EXPONENTS = range(-20, 21)  # of two: margins that are tried
SMALLEST = -20  # exponent of two below which no norm is told apart
# The shares of all integers add up to one, so that a theorem for each power of two holds for all.
TOTAL = math.pi**2 / 3 - 1


class MarginBound(Bound, abc.ABC, abstract=True):
    """A bound of the error rate by the share of training samples that are within a margin.

    The theorems hold for a margin and a norm that are fixed before the data are seen. Here both are
    powers of two, and each has its share of ``delta``: so the best margin can be chosen, and the
    norm that the weights turned out to have, rounded up.
    """

    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset({"sample-order", "unit-permutation"})

    @abc.abstractmethod
    def complexity(self, subject: Subject) -> Mapping[str, Any]:
        """Return the arguments of ``formula`` that do not depend on the margin."""

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Take the margin, among powers of two, that makes the bound smallest."""
        common = dict(self.complexity(subject))
        share, losses = common.pop("share"), ramp_losses(subject.margins("train"))
        tried = [
            {**common, "empirical": loss, "margin": 2.0**k, "share": share * share_of(k)}
            for k, loss in zip(EXPONENTS, losses, strict=True)
        ]
        return min(tried, key=lambda numbers: self.formula(**numbers).total)

    def terms(self, empirical: float, complexity: float, **others: float) -> Terms:
        """Put the parts of a bound together."""
        return Terms(empirical=empirical, complexity=complexity, others=others)

    def deviation(self, samples: int, share: float, expected: bool) -> float:
        """Return what samples leave open, for an expected or for an empirical complexity."""
        delta = self.delta * share
        if expected:
            return math.sqrt(math.log(1 / delta) / (2 * samples))
        return 3 * math.sqrt(math.log(2 / delta) / (2 * samples))


def ramp_losses(margins: Tensor) -> list[float]:
    """Compute the mean ramp loss, from 1 at a margin of zero to 0 at each power of two.

    >>> import torch
    >>> ramp_losses(torch.tensor([2.0, -1.0]))[EXPONENTS.index(2)]  # margin 4
    0.75
    """
    rows = margins.detach().cpu().double()
    # One margin at a time: of a million samples all of them would take hundreds of megabytes.
    return [float((1 - rows / 2.0**k).clamp_(0, 1).mean()) for k in EXPONENTS]


def share_of(exponent: int) -> float:
    """Return the share of ``delta`` for a power of two.

    >>> round(sum(share_of(k) for k in range(-10_000, 10_001)), 3)
    1.0
    """
    return 1 / (TOTAL * (1 + abs(exponent)) ** 2)


def rounded_norm(norm: float) -> tuple[float, float]:
    """Round a norm up to a power of two; return it and its share of ``delta``.

    >>> rounded_norm(3.0)[0], rounded_norm(0.0)[0] < 1e-5
    (4.0, True)
    """
    if not math.isfinite(norm):
        raise Undefined("needs finite norms; those of the path weights overflow")
    exponent = max(SMALLEST, math.ceil(math.log2(norm))) if norm > 0 else SMALLEST
    return 2.0**exponent, share_of(exponent)
