"""Theorem 2: the PAC-Bayes bound for uniform noise fitted to the Hessian."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mindgap.core import Bound, Subject, Terms, Undefined, option
from mindgap.ops.pac_bayes import hessian
from mindgap.ops.pac_bayes.hessian import theorem2, uniform_scales


class PacBayesHessian(Bound):
    r"""Bound the risk of a model with noise on its weights that is wide where the loss is flat.

    Formula: $\mathbb{E}_u L(w+u) \le \hat L(w) + \frac{1}{2} \sqrt{\frac{m}{n}} + \left( 1 +
    \frac{1}{e} \right) \sqrt{\frac{S + \ln\frac{1}{\delta} + \frac{\ln 2}{2} \left( 2 + \ln\left(
    \frac{S}{\ln(1/\delta)} + 1 \right) \right)}{2n}}, \quad S = \sum_i \ln \frac{\tau_i}{\sigma_i}$

    Reading: Curvature enters through a logarithm only, the number of weights through a root. The
    bound is vacuous unless there are many more samples than weights. It bounds the cross entropy,
    cut off and scaled to [0, 1], of the stochastic model; it bounds neither its error rate nor the
    risk of the model without noise. Useful for linear models; elsewhere a number to compare.

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
        help="τ, half width of the uniform prior, chosen before seeing the data",
        above=0,
    )
    relative: float = option(0.1, help="γ, radius of the noise relative to the weight", low=0)
    absolute: float = option(0.1, help="ε, absolute part of the radius of the noise", above=0)
    floor: float = option(
        1e-6, help="probability at which the cross entropy is cut off", above=0, below=1
    )
    largest: int = option(
        1000, help="number of weights above which the Hessian is not computed", low=1
    )

    def formula(
        self, *, empirical: float, log_ratio: float, parameters: int, samples: int
    ) -> Terms:
        """Evaluate Theorem 2 with the constants of its appendix."""
        value = theorem2(empirical, log_ratio, parameters, samples, self.delta)
        return Terms(
            empirical=empirical, complexity=value - empirical, others={"log_ratio": log_ratio}
        )

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Compute the bounded training loss and the divergence of the fitted noise."""
        weights, samples = hessian.flat_weights(subject.model), len(subject.train)
        if len(weights) > self.largest:
            raise Undefined(
                f"needs at most {self.largest:,} weights to compute the Hessian, got "
                f"{len(weights):,}"
            )
        radius = self.radius(weights)
        if float((weights.abs() + radius).max()) > self.limit:
            raise Undefined(
                "needs weights that, with their radius, lie within the prior's limit of "
                f"{self.limit:g}"
            )
        here = hessian.curvature(subject, weights, self.floor)
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
        """Compute the radius κ of each weight."""
        return self.relative * weights.abs() + self.absolute

    def lipschitz(self, subject: Subject, here: hessian.Curvature, radius: Tensor) -> float:
        """Compute ρ, proved for a linear model and estimated for others."""
        layer = hessian.linear_layer(subject)
        if layer is None:
            return hessian.estimated_lipschitz(subject, here, radius, self.floor)
        return hessian.proved_lipschitz(subject, layer, self.floor)

    def baseline(self, subject: Subject) -> float:
        """Return the bounded cross entropy of answering every sample with the class frequencies."""
        labels = subject.targets("train")
        shares = torch.bincount(labels).double() / len(labels)
        constant = shares.clamp(min=self.floor).log().expand(len(labels), -1)
        return float(hessian.bounded_cross_entropy(constant, labels, self.floor).mean())

    def provenance(self, subject: Subject) -> dict[str, Any]:
        """Add that the bound is about the stochastic model."""
        return {**super().provenance(subject), "risk_of": "the model with noise on its weights"}

    def broken(self, subject: Subject) -> str:
        """Say why convexity and smoothness cannot be proved."""
        layer = hessian.linear_layer(subject)
        if layer is None:
            return (
                "the model is not linear in its weights, so convexity and the Lipschitz constant are "
                "not proved"
            )
        radius = self.radius(hessian.flat_weights(subject.model))
        if hessian.meets_floor(subject, layer, radius, self.floor):
            return (
                "the loss of some sample may be cut off within the radius, and is not convex there"
            )
        return ""
