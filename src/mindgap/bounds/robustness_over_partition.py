"""The robustness bound of Xu and Mannor."""

from collections.abc import Mapping
from typing import Any

from mindgap.core import Bound, Subject, Terms
from mindgap.ops.concentration import robustness_bound


class RobustnessOverPartition(Bound):
    r"""Bound the risk by how much the loss varies within the cells of a partition.

    Formula: $R \le \hat R + \epsilon + M \sqrt{\frac{2 K \ln 2 + 2 \ln(1/\delta)}{n}}, \quad \epsilon =
    \sup_{s \in S, \, z \sim s} |\ell(s) - \ell(z)|$

    Reading: An algorithm whose loss hardly changes within a cell generalizes. For a subject the cells
    are its classes, the loss is the error, and ε is 1: no smaller number is proved without a look
    at all points of a cell, so that the value is vacuous. The measure loss-variation-in-cells
    estimates ε from below; with an ε that you proved, evaluate the formula.

    Assumes: Independent training samples, a loss in [0, M], and a partition of pairs of input and
    label that is fixed before the data are seen.

    >>> bound = RobustnessOverPartition(delta=0.05)
    >>> round(float(bound.evaluate(empirical=0.1, variation=0.05, cells=100, samples=60_000)), 6)
    0.199095
    """

    method = ("K3",)
    cites = ("xu2012robustness",)
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    def formula(
        self,
        *,
        empirical: float,
        variation: float,
        cells: int,
        samples: int,
        largest_loss: float = 1.0,
    ) -> Terms:
        """Evaluate Theorem 3 of Xu and Mannor."""
        total = robustness_bound(empirical, variation, cells, samples, self.delta, largest_loss)
        return Terms(
            empirical=empirical,
            complexity=total - empirical,
            ceiling=largest_loss,
            others={"variation": variation, "cells": float(cells)},
        )

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Take the training error; one cell per class, within which the error may vary by one."""
        return {
            "empirical": subject.mean_error("train"),
            "variation": 1.0,
            "cells": subject.outputs("train").shape[1],
            "samples": len(subject.train),
        }
