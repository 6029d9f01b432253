"""Exact heads: the last linear layer at the optimum of a weighted convex loss, for one or many weightings."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from mindgap.core.arguments import number
from mindgap.core.errors import InputError
from mindgap.core.split import check_finite
from mindgap.ops.convex_basis import Basis, basis_of
from mindgap.ops.convex_classes import Effort, logistic_heads, softmax_heads
from mindgap.ops.convex_squares import least_squares

Kind = Literal["softmax", "logistic", "squares"]
Start = tuple[Tensor, Tensor | None]
L2, TOLERANCE, MEMORY = 1e-6, 1e-8, 2**28


@dataclasses.dataclass(frozen=True)
class Heads:
    """Heads at their optimum, one for each weighting.

    ``weight`` is (heads, outputs, features), ``bias`` (heads, outputs) or ``None``. ``steepness`` is the largest entry
    of the gradient that is left, in coordinates in which the features have mean zero and variance one, and
    ``converged`` whether it is within the tolerance.
    """

    weight: Tensor
    bias: Tensor | None
    steepness: Tensor
    converged: Tensor

    def outputs(self, features: Tensor) -> Tensor:
        """What the heads make of features: (heads, samples, outputs)."""
        made = features.double() @ self.weight.mT
        return made if self.bias is None else made + self.bias[:, None]


def solve_heads(
    kind: Kind,
    features: Tensor,
    target: Tensor,
    weights: Tensor | None = None,
    *,
    outputs: int | None = None,
    l2: float = L2,
    bias: bool = True,
    start: Start | None = None,
    tolerance: float = TOLERANCE,
    memory: int = MEMORY,
    progress: bool = False,
) -> Heads:
    r"""Minimise a weighted mean loss over linear heads, in double precision.

    .. math:: \min_{W, b} \; \frac{\sum_i w_i \, \ell(W x_i + b, y_i)}{\sum_i w_i} + \frac{\lambda}{2} \|W\|_F^2

    The scale of the weights does not matter. The bias is not penalised. Classes that a hyperplane separates have no
    finite optimum without a penalty: the default ``l2`` of 1e-6 is there for them, and ``l2=0`` raises where the
    optimum is found to be at infinity.

    Args:
        kind: ``"softmax"`` (cross entropy of class numbers), ``"logistic"`` (each output a yes-or-no label) or
            ``"squares"`` (mean squared error over the outputs, in closed form).
        features: (samples, width).
        target: class numbers (samples,), or labels or values (samples,) or (samples, outputs).
        weights: (samples,), or (heads, samples) for many heads at once; all ones if missing.
        outputs: number of classes where not all occur in the target.
        l2: the penalty λ.
        bias: whether the head has one.
        start: weight and bias to begin from, the trained head if there is one.
        tolerance: Newton's method ends when no entry of the gradient is larger.
        memory: bytes that the tables of logits may take.
        progress: show a progress bar over the heads.

    >>> x, y = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.0, 2.0, 9.0])
    >>> solve_heads("squares", x, y, torch.tensor([1.0, 1.0, 0.0]), l2=0).outputs(x)[0, :, 0].round(decimals=9).tolist()
    [1.0, 2.0, 4.0]
    """
    number("l2", l2)
    _check(features, target)
    table, basis = _weights(weights, len(features)), basis_of(features, bias)
    if kind == "squares":
        values = target.double().reshape(len(target), -1)
        return _heads(basis, *least_squares(basis, values, table, l2))
    first, effort = None if start is None else basis.inward(*start), Effort(tolerance, memory, progress)
    if kind == "softmax":
        count = outputs or int(target.max()) + 1
        _check_classes(target, count)
        return _heads(basis, *softmax_heads(basis, target.long(), table, count, l2, first, effort))
    labels = target.reshape(len(target), -1)
    _check_labels(labels)
    return _heads(basis, *logistic_heads(basis, labels.long(), table, l2, first, effort))


def _heads(basis: Basis, found: Tensor, steepness: Tensor, converged: Tensor) -> Heads:
    return Heads(*basis.outward(found), steepness, converged)


def _check(features: Tensor, target: Tensor) -> None:
    if features.ndim != 2 or not len(features):
        raise InputError(
            f"features must be a table (samples, width) with samples, got the shape {tuple(features.shape)}. Flatten "
            "what belongs to one sample."
        )
    if len(target) != len(features):
        raise InputError(
            f"target must have one entry for each of the {len(features)} samples, got {len(target)}. Check that "
            "features and target belong together."
        )
    check_finite(features, "features")
    check_finite(target, "target")


def _check_classes(target: Tensor, count: int) -> None:
    low, high = int(target.min()), int(target.max())
    if low < 0 or high >= count:
        raise InputError(
            f"target must be class numbers from 0 to {count - 1}, got {low} to {high}. Renumber them or raise outputs."
        )


def _check_labels(labels: Tensor) -> None:
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise InputError("target must be labels 0 or 1, got other numbers. Round them, or solve in small batches.")


def _weights(weights: Tensor | None, samples: int) -> Tensor:
    """Weights (samples, heads) that sum to one a head."""
    table = torch.ones(1, samples, dtype=torch.float64) if weights is None else torch.atleast_2d(weights).double()
    if table.ndim != 2 or table.shape[1] != samples or not torch.isfinite(table).all() or (table < 0).any():
        raise InputError(
            f"weights must be {samples} finite numbers that are not negative, or a row of them for each head, got the "
            f"shape {tuple(table.shape)}. Give one weight a sample."
        )
    if not bool((table.sum(1) > 0).all()):
        raise InputError("weights must not all be zero, got a head whose samples weigh nothing. Raise one of them.")
    return (table / table.sum(1, keepdim=True)).T.contiguous()
