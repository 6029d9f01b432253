"""The margin bound of Koltchinskii and Panchenko for several classes."""

import math
from collections.abc import Mapping
from typing import Any

from mindgap.bounds.linear_class import LinearClassBound
from mindgap.bounds.margin_bound import rounded_norm
from mindgap.core import Subject, Terms, option


class KoltchinskiiPanchenko(LinearClassBound):
    r"""Bound the error rate by margins and the complexity of single outputs.

    Formula: $R \le \hat R_\rho + \frac{2 d_y^2}{\rho} \mathfrak{R} + \sqrt{\frac{\ln(1/\delta)}{2n}},
    \quad \mathfrak{R} = \frac{1}{n} \mathbb{E} \sup_{k,w} \sum_i \xi_i h_k(x_i) \le C_w
    \sqrt{\frac{\mathbb{E} \lVert x \rVert^2}{n}}$

    Reading: The theorem behind the data-independent bound. The square of the number of classes makes
    it large; the bound "rademacher" has a root instead. With the empirical complexity the last term
    is 3 √(ln(2/δ) / 2n).

    Assumes: Independent training samples, and a class that was chosen without them. ρ and the
    largest norm C_w of the weights of an output are powers of two with their shares of δ.

    >>> bound = KoltchinskiiPanchenko(delta=0.1, complexity_is="expected")
    >>> numbers = {"empirical": 0.0, "outputs": 10, "margin": 1.0, "samples": 45_000}
    >>> round(float(bound.evaluate(rademacher=0.25 / math.sqrt(45_000), **numbers)), 6)
    0.24076
    """

    method = ("K1",)
    cites = ("koltchinskii2002empirical", "mohri2018foundations", "kawaguchi2017generalization")

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
        outputs: int,
        margin: float,
        samples: int,
        share: float = 1.0,
    ) -> Terms:
        """Evaluate the theorem for a complexity that is divided by n."""
        slack = self.deviation(samples, share, self.complexity_is == "expected")
        grown = 2 * outputs**2 * rademacher / margin
        return self.terms(empirical, grown + slack, rademacher=rademacher, margin=margin)

    def complexity(self, subject: Subject) -> Mapping[str, Any]:
        """Bound the complexity by its closed form for the largest norm of an output's weights."""
        weight, square = self.parts(subject)
        norm, share = rounded_norm(float(weight.norm(dim=1).max()))
        samples = len(subject.train)
        return {
            "rademacher": norm * math.sqrt(square / samples),
            "outputs": len(weight),
            "samples": samples,
            "share": share,
        }

    def broken(self, subject: Subject) -> str:
        """Say so if the expected complexity would have to be known."""
        if self.complexity_is == "expected":
            return "the expected complexity is not known; the one of the samples took its place"
        return super().broken(subject)
