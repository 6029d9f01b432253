"""Theorem 2: PAC-Bayes for uniform noise that is fitted to the Hessian."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mindgap.core import Bound, Subject, Terms, Undefined, option
from mindgap.ops.pac_bayes import hessian as local
from mindgap.ops.pac_bayes.hessian import theorem2, uniform_scales


class PacBayesHessian(Bound):
    r"""Risk of the model with noise on its weights that is wide where the loss is flat.

    Formula: $\mathbb{E}_u L(w+u) \le \hat L(w) + \frac{1}{2} \sqrt{\frac{m}{n}} + \left( 1 +
    \frac{1}{e} \right) \sqrt{\frac{S + \ln\frac{1}{\delta} + \frac{\ln 2}{2} \left( 2 + \ln\left(
    \frac{S}{\ln(1/\delta)} + 1 \right) \right)}{2n}}, \quad S = \sum_i \ln \frac{\tau_i}{\sigma_i}$

    Reading: Curvature enters through a logarithm only, the number of weights through a root:
    vacuous unless there are many more samples than weights. Bounds the cross entropy, cut off and
    scaled to [0, 1], of the randomly perturbed model, neither its error rate nor the model as it
    stands. Of use on linear models; a number to compare elsewhere.

    Assumes: Independent samples; a training loss that is convex and has a Lipschitz Hessian within
    ``relative`` |w| + ``absolute`` of the weights; weights within ``limit``. Proved where the model
    is linear in its weights; elsewhere the Lipschitz constant is estimated, negative curvature
    counts as none, and the result is flagged as not valid.

    >>> bound = PacBayesHessian(delta=0.05)
    >>> round(
    ...     float(bound.evaluate(empirical=0.05, log_ratio=40.0, parameters=10, samples=60_000)), 4
    ... )
    0.0828
    """

    method = ("P2", "P3")
    cites = ("wang2018identifying", "seldin2012pac")
    direction = "lower"
    needs = frozenset({"classification", "gradients"})
    invariant_to = frozenset({"sample-order", "unit-permutation"})
    cost = "expensive"

    limit: float = option(
        10.0,
        help="τ, the largest size of a weight that the prior knows, chosen beforehand",
        above=0,
    )
    relative: float = option(0.1, help="γ, part of the radius that grows with the weight", low=0)
    absolute: float = option(0.1, help="ε, part of the radius that does not", above=0)
    floor: float = option(
        1e-6, help="probability at which the cross entropy is cut off", above=0, below=1
    )
    largest: int = option(
        1000, help="number of weights above which the Hessian is not computed", low=1
    )

    def formula(
        self, *, empirical: float, log_ratio: float, parameters: int, samples: int
    ) -> Terms:
        """Theorem 2 with the constants of its appendix."""
        value = theorem2(empirical, log_ratio, parameters, samples, self.delta)
        return Terms(
            empirical=empirical, complexity=value - empirical, others={"log_ratio": log_ratio}
        )

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Bounded training loss and the noise that its curvature allows."""
        weights, samples = local.flat_weights(subject.model), len(subject.train)
        if len(weights) > self.largest:
            raise Undefined(
                f"needs at most {self.largest:,} weights to know their curvature, got "
                f"{len(weights):,}"
            )
        radius = self.radius(weights)
        if float((weights.abs() + radius).max()) > self.limit:
            raise Undefined(
                f"needs weights that lie within the prior's limit of {self.limit:g} with their "
                "radius"
            )
        here = local.curvature(subject, weights, self.floor)
        scales = uniform_scales(
            here.diagonal.clamp(min=0),
            radius,
            lipschitz=self.lipschitz(subject, here, radius),
            eta=math.sqrt(len(weights) * samples),
        )
        ratio = float((self.limit / scales).log().sum())
        return {
            "empirical": here.loss,
            "log_ratio": ratio,
            "parameters": len(weights),
            "samples": samples,
        }

    def radius(self, weights: Tensor) -> Tensor:
        """κ, by weight."""
        return self.relative * weights.abs() + self.absolute

    def lipschitz(self, subject: Subject, here: local.Curvature, radius: Tensor) -> float:
        """ρ: proved for a linear model, estimated for others."""
        layer = local.linear_layer(subject)
        if layer is None:
            return local.estimated_lipschitz(subject, here, radius, self.floor)
        return local.proved_lipschitz(subject, layer, self.floor)

    def provenance(self, subject: Subject) -> dict[str, Any]:
        """As of any bound, and that it speaks of the noisy model."""
        return {**super().provenance(subject), "risk_of": "the model with noise on its weights"}

    def broken(self, subject: Subject) -> str:
        """Says so where convexity and smoothness cannot be proved."""
        layer = local.linear_layer(subject)
        if layer is None:
            return "the model is not linear in its weights, so convexity and the Lipschitz constant are not proved"
        radius = self.radius(local.flat_weights(subject.model))
        if local.meets_floor(subject, layer, radius, self.floor):
            return (
                "the loss of some sample may be cut off within the radius, and is not convex there"
            )
        return ""
