"""The Rademacher bound, for expected and empirical complexity."""

import math
from collections.abc import Mapping
from typing import Any

from mindgap.bounds.linear_class import LinearClassBound
from mindgap.bounds.margin_bound import rounded_norm
from mindgap.core import Subject, Terms, option


class Rademacher(LinearClassBound):
    r"""Bound the error rate by how well the class of losses fits random signs.

    Formula: $R \le \hat R_\rho + 2 \mathfrak{R} + \sqrt{\frac{\ln(1/\delta)}{2n}}, \qquad R \le \hat
    R_\rho + 2 \hat{\mathfrak{R}} + 3 \sqrt{\frac{\ln(2/\delta)}{2n}}, \qquad \hat{\mathfrak{R}} \le
    \frac{2 \sqrt{d_y} B}{\rho n} \sqrt{\sum_i k(x_i, x_i)}$

    Reading: The first form needs the expected complexity, which samples do not tell; the second the
    empirical one, in closed form for linear (k the inner product) and kernel classes of norm B.
    R̂_ρ counts samples within the margin ρ in part. Fitting random signs bounds the
    complexity of a network from below only, so it proves nothing there.

    Assumes: Independent training samples, and a class that was chosen without them. ρ and B are
    powers of two with their shares of δ. The weights of all outputs have the Frobenius norm B; the
    loss is √2/ρ-Lipschitz in the outputs, and Maurer's vector contraction gives another √2.

    >>> bound = Rademacher(delta=0.1)
    >>> numbers = {"empirical": 0.05, "rademacher": 0.02, "samples": 10_000}
    >>> round(float(bound.evaluate(**numbers)), 6)
    0.126716
    >>> round(float(Rademacher(delta=0.1, complexity_is="expected").evaluate(**numbers)), 6)
    0.10073
    """

    method = ("K1",)
    cites = ("mohri2018foundations", "maurer2016vector", "kawaguchi2017generalization")

    complexity_is: str = option(
        "empirical",
        help="whether the complexity is that of the samples or its expectation",
        choices=("empirical", "expected"),
    )

    def formula(
        self,
        *,
        empirical: float,
        rademacher: float,
        samples: int,
        margin: float = 1.0,
        share: float = 1.0,
    ) -> Terms:
        """Add twice the complexity of the losses, and what samples leave open."""
        slack = self.deviation(samples, share, self.complexity_is == "expected")
        return self.terms(
            empirical, 2 * rademacher / margin + slack, rademacher=rademacher, margin=margin
        )

    def complexity(self, subject: Subject) -> Mapping[str, Any]:
        """Bound the complexity at margin one by its closed form."""
        weight, square = self.parts(subject)
        norm, share = rounded_norm(float(weight.norm()))
        samples = len(subject.train)
        closed = 2 * math.sqrt(len(weight)) * norm * math.sqrt(square / samples)
        return {"rademacher": closed, "samples": samples, "share": share}

    def broken(self, subject: Subject) -> str:
        """Say so if the expected complexity would have to be known."""
        if self.complexity_is == "expected":
            return "the expected complexity is not known; the one of the samples took its place"
        return super().broken(subject)
