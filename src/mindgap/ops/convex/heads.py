"""Exact heads: the last layer at the optimum of a convex loss, for many sets of weights."""

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, Progress, check_finite, number
from mindgap.ops.convex.softmax import Descent, Softmax, minimize
from mindgap.ops.convex.squares import Basis, basis_of, least_squares

Kind = Literal["softmax", "logistic", "squares"]
Start = tuple[Tensor, Tensor | None]
_Found = tuple[Tensor, Tensor, Tensor]  # coordinates, gradient norms, converged
L2, TOLERANCE, MEMORY = 1e-6, 1e-8, 2**24
TABLES = 6  # tables as large as the logits that a Newton step holds


@dataclasses.dataclass(frozen=True)
class Heads:
    """Heads at their optimum, one for each set of sample weights.

    Attributes:
        weight: (heads, outputs, features).
        bias: (heads, outputs), or None.
        gradient_norm: Maximum norm of the remaining gradient, in coordinates in which the features
            have mean zero and variance one.
        converged: Whether the gradient norm is within the tolerance.
    """

    weight: Tensor
    bias: Tensor | None
    gradient_norm: Tensor
    converged: Tensor

    def outputs(self, features: Tensor) -> Tensor:
        """Compute the outputs (heads, samples, outputs) of all heads."""
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
    r"""Minimize a weighted mean loss over linear heads, in double precision.

    .. math:: \min_{W, b} \; \frac{\sum_i w_i \, \ell(W x_i + b, y_i)}{\sum_i w_i} + \frac{\lambda}{2} \|W\|_F^2

    The scale of the weights does not matter. The bias is not penalized. Classes that a hyperplane
    separates have no finite optimum without a penalty: therefore ``l2`` is 1e-6 by default, and
    ``l2=0`` raises if the optimum is at infinity.

    Args:
        kind: ``"softmax"`` (cross entropy of class numbers), ``"logistic"`` (each output a binary
            label) or ``"squares"`` (mean squared error over the outputs, in closed form).
        features: (samples, width).
        target: Class numbers (samples,), or labels or values (samples,) or (samples, outputs).
        weights: (samples,), or (heads, samples) for many heads at once; all ones if None.
        outputs: Number of classes if not all occur in the target.
        l2: Penalty λ.
        bias: Whether the head has one.
        start: Initial weight and bias, such as those of the trained head.
        tolerance: Newton's method stops when no entry of the gradient is larger.
        memory: Bytes that the tables of logits may take.
        progress: Show a progress bar over the heads.

    The last sample below does not fit the line of the others. With weight zero it is ignored:

    >>> x, y = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.0, 2.0, 9.0])
    >>> heads = solve_heads("squares", x, y, torch.tensor([1.0, 1.0, 0.0]), l2=0)
    >>> heads.outputs(x)[0, :, 0].round(decimals=9).tolist()
    [1.0, 2.0, 4.0]
    """
    number("l2", l2)
    _check(features, target)
    table, basis = _weights(weights, len(features)), basis_of(features, bias)
    if kind == "squares":
        values = target.double().reshape(len(target), -1)
        return _heads(basis, *least_squares(basis, values, table, l2))
    first = None if start is None else basis.inward(*start)
    limits = _Limits(tolerance, memory, progress)
    if kind == "softmax":
        count = outputs or int(target.max()) + 1
        _check_classes(target, count)
        return _heads(basis, *_softmax(basis, target.long(), table, count, l2, first, limits))
    labels = target.reshape(len(target), -1)
    _check_labels(labels)
    return _heads(basis, *_logistic(basis, labels.long(), table, l2, first, limits))


def _heads(basis: Basis, found: Tensor, gradient_norm: Tensor, converged: Tensor) -> Heads:
    return Heads(*basis.outward(found), gradient_norm, converged)


@dataclasses.dataclass(frozen=True)
class _Limits:
    """Tolerance and memory of the solver, and whether it shows a progress bar."""

    tolerance: float
    memory: int
    progress: bool


def _softmax(
    basis: Basis,
    target: Tensor,
    weights: Tensor,
    classes: int,
    l2: float,
    start: Tensor | None,
    limits: _Limits,
) -> _Found:
    """Solve for the first set of weights, then for the others in batches from its optimum."""
    head = basis.rows.new_zeros(classes, basis.rows.shape[1]) if start is None else start
    size = max(1, limits.memory // (8 * TABLES * len(weights) * classes))
    parts, descent = [], Descent()
    with Progress(weights.shape[1], title="heads", unit="head", shown=limits.progress) as bar:
        for chunk in _chunks(weights, size):
            problem = Softmax(basis, target, chunk, l2 * basis.penalty)
            initial = head.expand(chunk.shape[1], -1, -1)
            parts.append(minimize(problem, initial, limits.tolerance, descent))
            head = parts[0][0][0]
            if not l2:
                _check_finite(problem, parts[-1][0])
            bar.advance(by=chunk.shape[1])
    found, gradient_norm, converged = (torch.cat(column) for column in zip(*parts, strict=True))
    return found, gradient_norm, converged


def _logistic(
    basis: Basis, labels: Tensor, weights: Tensor, l2: float, start: Tensor | None, limits: _Limits
) -> _Found:
    """Solve each output as a softmax of two classes with logits -z/2 and z/2.

    Their squared norm is half that of z, hence the factor 2 of the penalty. The loss is a mean over
    the outputs; solved alone, each output needs the penalty times the number of outputs.
    """
    parts = []
    for k, column in enumerate(labels.T):
        pair = None if start is None else torch.stack([-start[k], start[k]]) / 2
        parts.append(_softmax(basis, column, weights, 2, 2 * l2 * labels.shape[1], pair, limits))
    found = torch.stack([part[0][:, 1] - part[0][:, 0] for part in parts], dim=1)
    gradient_norm = torch.stack([part[1] for part in parts]).amax(0)
    return found, gradient_norm, torch.stack([part[2] for part in parts]).all(0)


def _chunks(weights: Tensor, size: int) -> list[Tensor]:
    rest = weights[:, 1:]
    return [weights[:, :1], *(rest.split(size, dim=1) if rest.shape[1] else ())]


def _check_finite(problem: Softmax, heads: Tensor) -> None:
    """Raise if a head separates the classes: unpenalized, its loss falls as it grows."""
    logits = problem.logits(heads)
    target = problem.target[:, None, None].expand(-1, logits.shape[1], 1)
    right = logits.gather(2, target)
    others = logits.scatter(2, target, -torch.inf).amax(2, keepdim=True)
    if bool(((right > others)[:, :, 0] | (problem.weights == 0)).all(0).any()):
        raise InputError(
            "l2 must be above 0 if a head classifies every training sample correctly, got 0: the "
            "optimum is at infinity. Pass l2=1e-6."
        )


def _check(features: Tensor, target: Tensor) -> None:
    if features.ndim != 2 or not len(features):
        raise InputError(
            "features must be a table (samples, width) with at least one sample, got the shape "
            f"{tuple(features.shape)}. Flatten the features of each sample."
        )
    if len(target) != len(features):
        raise InputError(
            f"target must have one entry for each of the {len(features)} samples, got "
            f"{len(target)}. Check that features and target belong together."
        )
    check_finite(features, "features")
    check_finite(target, "target")


def _check_classes(target: Tensor, count: int) -> None:
    low, high = int(target.min()), int(target.max())
    if low < 0 or high >= count:
        raise InputError(
            f"target must be class numbers from 0 to {count - 1}, got {low} to {high}. Renumber "
            "them or raise outputs."
        )


def _check_labels(labels: Tensor) -> None:
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise InputError(
            "target must be labels 0 or 1, got other numbers. Round them, or train the head in "
            "minibatches."
        )


def _weights(weights: Tensor | None, samples: int) -> Tensor:
    """Normalize weights to (samples, heads), with a sum of one per head."""
    table = (
        torch.ones(1, samples, dtype=torch.float64)
        if weights is None
        else torch.atleast_2d(weights).double()
    )
    if (
        table.ndim != 2
        or table.shape[1] != samples
        or not torch.isfinite(table).all()
        or (table < 0).any()
    ):
        raise InputError(
            f"weights must be {samples} finite numbers of at least 0, or one row of them per head, "
            f"got the shape {tuple(table.shape)}. Pass one weight per sample."
        )
    if not bool((table.sum(1) > 0).all()):
        raise InputError(
            "weights must not all be zero, got a head whose samples all have weight 0. Raise one "
            "of them."
        )
    return (table / table.sum(1, keepdim=True)).T.contiguous()
