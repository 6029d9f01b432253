"""Exact heads: the last linear layer at the optimum of a weighted convex loss, for one or many weightings.

Heads of classes and of yes-or-no labels, for many weightings: the first shows the others the way.
"""

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, Progress, check_finite, number
from mindgap.ops.convex.softmax import Descent, Softmax, minimize
from mindgap.ops.convex.squares import Basis, basis_of, least_squares

TABLES = 6  # tables of the size of the logits that a Newton step holds
Found = tuple[Tensor, Tensor, Tensor]  # coordinates, steepness, converged


@dataclasses.dataclass(frozen=True)
class Effort:
    """How exact, in how much memory, and whether a bar shows it."""

    tolerance: float
    memory: int
    progress: bool


def softmax_heads(
    basis: Basis,
    target: Tensor,
    weights: Tensor,
    classes: int,
    l2: float,
    start: Tensor | None,
    effort: Effort,
) -> Found:
    """Coordinates (heads, classes, r) for weights (n, heads): the first head alone, the others in batches from it."""
    head = basis.rows.new_zeros(classes, basis.rows.shape[1]) if start is None else start
    size = max(1, effort.memory // (8 * TABLES * len(weights) * classes))
    parts, way = [], Descent()
    with Progress(weights.shape[1], title="heads", unit="head", shown=effort.progress) as bar:
        for chunk in _chunks(weights, size):
            problem = Softmax(basis, target, chunk, l2 * basis.penalty)
            parts.append(
                minimize(problem, head.expand(chunk.shape[1], -1, -1), effort.tolerance, way)
            )
            head = parts[0][0][0]
            if not l2:
                _check_finite(problem, parts[-1][0])
            bar.advance(by=chunk.shape[1])
    found, steepness, converged = (torch.cat(column) for column in zip(*parts, strict=True))
    return found, steepness, converged


def logistic_heads(
    basis: Basis, labels: Tensor, weights: Tensor, l2: float, start: Tensor | None, effort: Effort
) -> Found:
    """Each output is a softmax of two classes with logits -z/2 and z/2, whose squared norm is half that of z.

    The loss is a mean over the outputs, so alone each bears the penalty as often as there are
    outputs.
    """
    parts = []
    for k, column in enumerate(labels.T):
        pair = None if start is None else torch.stack([-start[k], start[k]]) / 2
        parts.append(
            softmax_heads(basis, column, weights, 2, 2 * l2 * labels.shape[1], pair, effort)
        )
    found = torch.stack([part[0][:, 1] - part[0][:, 0] for part in parts], dim=1)
    steepness = torch.stack([part[1] for part in parts]).amax(0)
    return found, steepness, torch.stack([part[2] for part in parts]).all(0)


def _chunks(weights: Tensor, size: int) -> list[Tensor]:
    rest = weights[:, 1:]
    return [weights[:, :1], *(rest.split(size, dim=1) if rest.shape[1] else ())]


def _check_finite(problem: Softmax, heads: Tensor) -> None:
    """Without a penalty, a head that gets every sample right gets better for ever as it grows."""
    logits = problem.logits(heads)
    place = problem.target[:, None, None].expand(-1, logits.shape[1], 1)
    right, others = (
        logits.gather(2, place),
        logits.scatter(2, place, -torch.inf).amax(2, keepdim=True),
    )
    if bool(((right > others)[:, :, 0] | (problem.weights == 0)).all(0).any()):
        raise InputError(
            "l2 must be above 0 where a head gets every training sample right, got 0: the optimum "
            "lies at infinity. "
            "Pass l2=1e-6."
        )


Kind = Literal["softmax", "logistic", "squares"]
Start = tuple[Tensor, Tensor | None]
L2, TOLERANCE, MEMORY = 1e-6, 1e-8, 2**28


@dataclasses.dataclass(frozen=True)
class Heads:
    """Heads at their optimum, one for each weighting.

    ``weight`` is (heads, outputs, features), ``bias`` (heads, outputs) or ``None``. ``steepness``
    is the largest entry of the gradient that is left, in coordinates in which the features have
    mean zero and variance one, and ``converged`` whether it is within the tolerance.
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
    r"""Minimize a weighted mean loss over linear heads, in double precision.

    .. math:: \min_{W, b} \; \frac{\sum_i w_i \, \ell(W x_i + b, y_i)}{\sum_i w_i} + \frac{\lambda}{2} \|W\|_F^2

    The scale of the weights does not matter. The bias is not penalized. Classes that a hyperplane
    separates have no finite optimum without a penalty: the default ``l2`` of 1e-6 is there for
    them, and ``l2=0`` raises where the optimum is found to be at infinity.

    Args:
        kind: ``"softmax"`` (cross entropy of class numbers), ``"logistic"`` (each output a
            yes-or-no label) or ``"squares"`` (mean squared error over the outputs, in closed form).
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
    >>> solve_heads("squares", x, y, torch.tensor([1.0, 1.0, 0.0]), l2=0).outputs(x)[0, :, 0].round(
    ...     decimals=9
    ... ).tolist()
    [1.0, 2.0, 4.0]
    """
    number("l2", l2)
    _check(features, target)
    table, basis = _weights(weights, len(features)), basis_of(features, bias)
    if kind == "squares":
        values = target.double().reshape(len(target), -1)
        return _heads(basis, *least_squares(basis, values, table, l2))
    first, effort = (
        None if start is None else basis.inward(*start),
        Effort(tolerance, memory, progress),
    )
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
            "features must be a table (samples, width) with samples, got the shape "
            f"{tuple(features.shape)}. Flatten "
            "what belongs to one sample."
        )
    if len(target) != len(features):
        raise InputError(
            f"target must have one entry for each of the {len(features)} samples, got "
            f"{len(target)}. Check that "
            "features and target belong together."
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
            "target must be labels 0 or 1, got other numbers. Round them, or solve in small "
            "batches."
        )


def _weights(weights: Tensor | None, samples: int) -> Tensor:
    """Weights (samples, heads) that sum to one a head."""
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
            f"weights must be {samples} finite numbers that are not negative, or a row of them "
            "for each head, got the "
            f"shape {tuple(table.shape)}. Give one weight per sample."
        )
    if not bool((table.sum(1) > 0).all()):
        raise InputError(
            "weights must not all be zero, got a head whose samples weigh nothing. Raise one of "
            "them."
        )
    return (table / table.sum(1, keepdim=True)).T.contiguous()
