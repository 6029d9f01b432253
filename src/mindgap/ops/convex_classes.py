"""Heads of classes and of yes-or-no labels, for many weightings: the first shows the others the way."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from tqdm import tqdm

from mindgap.core.errors import InputError
from mindgap.ops.convex_basis import Basis
from mindgap.ops.convex_softmax import Progress, Softmax, minimize

TABLES = 6  # tables of the size of the logits that a Newton step holds
Found = tuple[Tensor, Tensor, Tensor]  # coordinates, steepness, converged


@dataclasses.dataclass(frozen=True)
class Effort:
    """How exact, in how much memory, and whether a bar shows it."""

    tolerance: float
    memory: int
    progress: bool


def softmax_heads(
    basis: Basis, target: Tensor, weights: Tensor, classes: int, l2: float, start: Tensor | None, effort: Effort
) -> Found:
    """Coordinates (heads, classes, r) for weights (n, heads): the first head alone, the others in batches from it."""
    head = basis.rows.new_zeros(classes, basis.rows.shape[1]) if start is None else start
    size = max(1, effort.memory // (8 * TABLES * len(weights) * classes))
    parts, way = [], Progress()
    with tqdm(total=weights.shape[1], desc="heads", disable=not effort.progress) as bar:
        for chunk in _chunks(weights, size):
            problem = Softmax(basis, target, chunk, l2 * basis.penalty)
            parts.append(minimize(problem, head.expand(chunk.shape[1], -1, -1), effort.tolerance, way))
            head = parts[0][0][0]
            if not l2:
                _check_finite(problem, parts[-1][0])
            bar.update(chunk.shape[1])
    found, steepness, converged = (torch.cat(column) for column in zip(*parts, strict=True))
    return found, steepness, converged


def logistic_heads(
    basis: Basis, labels: Tensor, weights: Tensor, l2: float, start: Tensor | None, effort: Effort
) -> Found:
    """Each output is a softmax of two classes with logits -z/2 and z/2, whose squared norm is half that of z.

    The loss is a mean over the outputs, so alone each bears the penalty as often as there are outputs.
    """
    parts = []
    for k, column in enumerate(labels.T):
        pair = None if start is None else torch.stack([-start[k], start[k]]) / 2
        parts.append(softmax_heads(basis, column, weights, 2, 2 * l2 * labels.shape[1], pair, effort))
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
    right, others = logits.gather(2, place), logits.scatter(2, place, -torch.inf).amax(2, keepdim=True)
    if bool(((right > others)[:, :, 0] | (problem.weights == 0)).all(0).any()):
        raise InputError(
            "l2 must be above 0 where a head gets every train sample right, got 0: the optimum lies at infinity. "
            "Pass l2=1e-6."
        )
