"""The tight certified bound: multipliers improved by first-order steps from a closed-form start."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from mindgap.core import implements
from mindgap.ops.lipschitz.certificate import Groups, Infeasible, Moves, behind, certified, constant
from mindgap.ops.lipschitz.gradient import quick_steps
from mindgap.ops.lipschitz.levels import Level, Levels

STEPS = 36  # leave LeNet-5 within a minute of CPU time
_LARGE = 2**21  # entries of a matrix
_MEMORY = 12  # pairs of steps and gradients that approximate the curvature
# In turn: the order of the smooth maximum of eigenvalues, and the weight of the barrier. Without a
# barrier, steps end at the border of the feasible multipliers far from the best ones.
_STAGES = ((16.0, 0.1), (64.0, 1e-2), (256.0, 1e-3), (2048.0, 1e-4))
_SMALL = 1e-6  # improvement of the logarithm over a few steps at which a stage ends


@dataclasses.dataclass(frozen=True)
class Tight:
    """A certified bound.

    Args:
        upper: The Lipschitz constant is at most this.
        outputs: P: the difference of two outputs, d, fulfills (cᵀd)² ≤ cᵀPc ‖x − x'‖² for every c.
        start: The bound of the closed-form start.
        steps: The bound after every step, without reserve for rounding.
        levels: How many levels of activations were taken together.
    """

    upper: float
    outputs: Tensor
    start: float
    steps: tuple[float, ...]
    levels: int


@implements("S5", "E9", cites=("fazlyab2019efficient", "xu2024eclipse"))
def tight_upper(
    levels: Levels,
    *,
    steps: int = STEPS,
    seconds: float = math.inf,
    shared: bool | None = None,
) -> Tight:
    r"""Bound the Lipschitz constant of a network by the best multipliers that are found.

    Formula: $L^2 \le \min_{\tau} \lambda_{\max}(W \Sigma_K W^\top), \quad \Sigma_i = m\tau_i(\tau_i -
    P_i)^{-1}\tau_i m - ab\,\tau_i, \quad P_i = W_i \Sigma_{i-1} W_i^\top$

    Reading: Holds for all inputs. The multipliers that are returned prove it, whether they are the
    best or not: they are checked at the end, with a bound of all rounding errors added.

    Assumes: Exact arithmetic in the model; activations with slopes from a to b.

    Args:
        levels: The network, from :func:`mindgap.ops.lipschitz.levels.read_levels`.
        steps: How many steps improve the multipliers, at most.
        seconds: The CPU time after which no step begins. With a limit, the bound depends on the
            machine; it is certified all the same.
        shared: Whether the places of a channel share a multiplier; by default in the first half of the
            steps in large layers, and behind max-pooling.

    >>> from torch import nn
    >>> from mindgap.ops.lipschitz.levels import read_levels
    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    >>> with torch.no_grad():
    ...     _ = net[0].weight.copy_(torch.eye(2))
    ...     _ = net[2].weight.copy_(torch.tensor([[3.0, 4.0]]))
    >>> round(tight_upper(read_levels(net, torch.zeros(2))).upper, 4)
    5.0
    """
    groups = [
        Groups.of(level, _is_large(level) if shared is None else shared) for level in levels.levels
    ]
    logs = feasible(levels, groups)
    begin, history = constant(certified(levels, logs, groups)[0]), list[float]()
    if _is_quick(levels):
        first = steps if shared else steps // 2
        clock = time.process_time()
        logs, history = quick_steps(levels, logs, groups, first, seconds if shared else seconds / 2)
        if shared is None:
            logs = [log[group.places] for log, group in zip(logs, groups, strict=True)]
            groups = [Groups.of(level, False) for level in levels.levels]
            left = max(0.0, seconds - (time.process_time() - clock))
            logs, later = quick_steps(levels, logs, groups, steps - first, left)
            history += later[1:]
    elif logs:
        logs, history = _improved(levels, logs, groups, steps, seconds)
    outputs = _guarded(levels, logs, groups)
    return Tight(constant(outputs), outputs, begin, tuple(history), len(levels.levels))


def _is_quick(levels: Levels) -> bool:
    """Tell whether steps take long, and the gradient of the bound reaches every level."""
    pooled = any(level.sees is not None for level in levels.levels)
    return not pooled and any(_is_large(level) for level in levels.levels)


def _is_large(level: Level) -> bool:
    """Tell whether single multipliers would take long: after max-pooling, and in layers that widen a lot."""
    rows, width = level.affine.matrix.shape
    return level.sees is not None or bool(rows > width and rows * width > _LARGE)


def feasible(levels: Levels, groups: Sequence[Groups], before: Moves | None = None) -> list[Tensor]:
    """Return multipliers of which every level has one number, in closed form: τ = 2 λmax(P).

    Args:
        levels: The network.
        groups: Which states share multipliers.
        before: The certificate of the input; Σ = I if None.
    """
    moves, logs = before or Moves.of_input(levels.width), list[Tensor]()
    for level, group in zip(levels.levels, groups, strict=True):
        rows, columns = level.affine.matrix.shape
        if moves.left is None and moves.base is None and rows > columns:
            root = moves.diagonal[moves.places].sqrt()
            gram = level.affine.matrix.T @ level.affine.matrix * root * root[:, None]
        else:
            gram = moves.through(level.affine)
        largest = max(float(torch.linalg.eigvalsh(gram)[-1]), 1e-300)
        factor = (
            2.0 if level.sees is None else 2.0 * float((level.sees.sum(0) * level.high**2).max())
        )
        log = torch.full((group.count,), math.log(factor * largest), dtype=torch.double)
        moves = behind(level, moves, log, group)
        logs.append(log)
    return logs


def _improved(
    levels: Levels, logs: list[Tensor], groups: Sequence[Groups], steps: int, seconds: float
) -> tuple[list[Tensor], list[float]]:
    end = time.process_time() + seconds
    sizes = [len(log) for log in logs]
    point, history = torch.cat(logs), list[float]()
    best = point

    units = sum(len(level.low) for level in levels.levels)

    def value(vector: Tensor, order: float, weight: float) -> tuple[Tensor, Tensor]:
        outputs, barrier = certified(levels, vector.split(sizes), groups)
        values = torch.linalg.eigvalsh(outputs)
        top = values[-1].detach().clamp_min(1e-300)
        smooth = top.log() + (values.clamp_min(0) / top).pow(order).sum().log() / order
        return smooth + weight / units * barrier, top.log()

    lowest, left = math.inf, steps
    for stage, (order, weight) in enumerate(_STAGES):
        count = left // (len(_STAGES) - stage)
        left_now = (end - time.process_time()) / (len(_STAGES) - stage)
        seen = _descend(partial(value, order=order, weight=weight), point, count, left_now)
        left -= max(0, len(seen) - 1)
        for point, top in seen:
            history.append(math.exp(top / 2))
            if top < lowest:
                best, lowest = point, top
    return list(best.split(sizes)), history


Objective = Callable[[Tensor], tuple[Tensor, Tensor]]


def _descend(
    objective: Objective, point: Tensor, steps: int, seconds: float
) -> list[tuple[Tensor, float]]:
    """Take quasi-Newton steps (L-BFGS) that shrink until the multipliers certify and the value falls."""
    end = time.process_time() + seconds
    pairs, seen = list[tuple[Tensor, Tensor]](), list[tuple[Tensor, float]]()
    first = _evaluated(objective, point)
    if first is None:
        return []
    value, slope, top = first
    seen.append((point, top))
    values = [value]
    for _ in range(steps):
        if time.process_time() >= end:
            break
        direction = -_scaled(slope, pairs)
        if float(direction @ slope) >= 0:
            pairs, direction = [], -slope
        if not pairs:
            direction = direction / direction.abs().max().clamp_min(1e-300) * 0.3
        largest = float(direction.abs().max())
        rate = min(1.0, 2.0 / largest) if largest > 0 else 0.0
        found = _search(objective, point, value, float(direction @ slope), direction, rate)
        if found is None:
            if not pairs:
                break
            pairs = []
            continue
        moved, new, other, top = found
        change, turn = moved - point, other - slope
        if float(change @ turn) > 1e-12 * float(change @ change):
            pairs = [*pairs, (change, turn)][-_MEMORY:]
        point, value, slope = moved, new, other
        seen.append((point, top))
        values.append(value)
        if len(values) > 8 and values[-8] - value < _SMALL:
            break
    return seen


def _search(
    objective: Objective, point: Tensor, value: float, fall: float, direction: Tensor, rate: float
) -> tuple[Tensor, float, Tensor, float] | None:
    """Shorten a step until the value falls enough; only then is its gradient computed."""
    for _ in range(25):
        moved = point + rate * direction
        found = _evaluated(objective, moved, value + 1e-4 * rate * fall)
        if found is not None:
            return moved, *found
        rate *= 0.4
    return None


def _evaluated(
    objective: Objective, point: Tensor, most: float = math.inf
) -> tuple[float, Tensor, float] | None:
    """Return value, gradient and largest eigenvalue; None if the value is above ``most``."""
    with torch.enable_grad():
        given = point.detach().clone().requires_grad_()
        try:
            smooth, top = objective(given)
        except Infeasible:
            return None
        if not float(smooth.detach()) <= most:
            return None
        (slope,) = torch.autograd.grad(smooth, given)
    return float(smooth.detach()), slope, float(top)


def _scaled(slope: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Multiply the gradient by the approximate inverse of the curvature (two-loop recursion)."""
    found, factors = slope.clone(), list[float]()
    for change, turn in reversed(pairs):
        factors.append(float(change @ found) / float(change @ turn))
        found -= factors[-1] * turn
    if pairs:
        change, turn = pairs[-1]
        found *= float(change @ turn) / float(turn @ turn)
    for (change, turn), factor in zip(pairs, reversed(factors), strict=True):
        found += (factor - float(turn @ found) / float(change @ turn)) * change
    return found


def _guarded(levels: Levels, logs: Sequence[Tensor], groups: Sequence[Groups]) -> Tensor:
    """Repeat the certificate with all rounding errors bounded; raise τ a little where that fails."""
    for reserve in (0.0, 1e-7, 1e-5, 1e-3, 0.1):
        try:
            moved = [log + reserve * (k + 1) for k, log in enumerate(logs)]
            return certified(levels, moved, groups, guard=True)[0]
        except Infeasible:
            continue
    raise Infeasible("no multipliers certify in spite of rounding")
