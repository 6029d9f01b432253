"""The VC bound for networks of ReLU layers."""

import math
from collections.abc import Mapping
from typing import Any

from mindgap.core import Bound, Subject, Terms
from mindgap.ops.paths.growth import vc_dimension
from mindgap.ops.paths.subject import chain_of


class VcDimension(Bound):
    r"""Bound the error rate by the VC dimension of the architecture, with all constants.

    Formula: $R \le \hat R + \sqrt{\frac{2 d \ln(en/d)}{n}} + \sqrt{\frac{\ln(1/\delta)}{2n}}, \quad d
    = \max\left\{ n : \sum_i \left( \ln 2 + W_i \ln \frac{2 e n k_i i}{W_i} \right) \ge n \ln 2
    \right\}$

    Reading: Counts the ways in which networks of this shape can be wrong, whatever their weights. It
    is the same for a network that generalizes and one that memorized random labels. It says
    something only with many more samples than weights times layers.

    Assumes: Independent training samples, and an architecture that was chosen without them. The
    network is a chain of linear, convolutional, ReLU and pooling layers. $W_i$ weights lie up to
    layer i, $k_i$ is its number of units (outputs: of pairs). With fewer samples than d, the first
    root is √(2 ln 2).

    >>> bound = VcDimension(delta=0.05)
    >>> round(float(bound.evaluate(empirical=0.01, vc_dimension=100, samples=60_000)), 4)
    0.172
    """

    method = ("K1",)
    cites = ("bartlett2019nearly", "mohri2018foundations")
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    def formula(self, *, empirical: float, vc_dimension: int, samples: int) -> Terms:
        """Evaluate Corollary 3.19 of Mohri et al.; Sauer's lemma needs d samples."""
        dimension = max(vc_dimension, 1)
        logarithm = samples * math.log(2)
        if samples > dimension:
            logarithm = min(logarithm, dimension * math.log(math.e * samples / dimension))
        slack = math.sqrt(math.log(1 / self.delta) / (2 * samples))
        return Terms(
            empirical=empirical,
            complexity=math.sqrt(2 * logarithm / samples) + slack,
            others={"vc_dimension": float(vc_dimension)},
        )

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Take the training error, and count the decisions of the architecture."""
        return {
            "empirical": subject.mean_error("train"),
            "vc_dimension": vc_dimension(chain_of(subject)),
            "samples": len(subject.train),
        }
