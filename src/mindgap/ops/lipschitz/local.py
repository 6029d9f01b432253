"""Certified bounds around one input, and radii within which no prediction changes.

In a ball or box many ReLUs are certainly on or certainly off. Their slope is then one number instead
of a range, which makes the constant smaller.
"""

import dataclasses
import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import choice, implements, number
from mindgap.ops.lipschitz.certificate import Groups, Moves, behind
from mindgap.ops.lipschitz.levels import Level, Levels
from mindgap.ops.lipschitz.slopes import slopes_between
from mindgap.ops.lipschitz.tight import Tight, feasible, tight_upper
from mindgap.ops.lipschitz.upper import pair_constants

Norm = Literal["l2", "linf"]
_MONOTONE = ("relu", "leaky_relu", "tanh", "sigmoid", "softplus", "relu6", "hardtanh")
_RESERVE = 1e-9  # relative widening of intervals, far above rounding


@dataclasses.dataclass(frozen=True)
class Local:
    """A bound around one input.

    Args:
        upper: The constant for all pairs of inputs in the ball or box, in Euclidean norm.
        outputs: P, as in :class:`mindgap.ops.lipschitz.upper.Upper`.
        fixed: The share of activations that have one slope there.
    """

    upper: float
    outputs: Tensor
    fixed: float


@implements("S5", cites=("fazlyab2019efficient", "huang2021training"))
def local_upper(
    levels: Levels, point: Tensor, radius: float, *, norm: Norm = "l2", steps: int = 30
) -> Local:
    r"""Bound the Lipschitz constant of a network in a ball or box around one input.

    Formula: $\lVert f(x) - f(x') \rVert_2 \le L \lVert x - x' \rVert_2 \text{ for all } x, x' \in B$

    Reading: At most the global bound up to the search for multipliers, and for small radii close to
    the slope at the point. Distances are Euclidean also in a box.

    Assumes: Exact arithmetic in the model.

    Args:
        levels: The network, from :func:`mindgap.ops.lipschitz.levels.read_levels`.
        point: The input.
        radius: Of the ball (``"l2"``), or half the side of the box (``"linf"``).
        norm: Which of the two.
        steps: How many steps improve the multipliers, at most.

    >>> from torch import nn
    >>> from mindgap.ops.lipschitz.levels import read_levels
    >>> net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1))
    >>> with torch.no_grad():
    ...     _ = net[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
    ...     _ = net[2].weight.copy_(torch.tensor([[1.0, 3.0]]))
    >>> levels = read_levels(net, torch.zeros(1))
    >>> [round(local_upper(levels, torch.ones(1), radius).upper, 3) for radius in (0.5, 2.0)]
    [1.0, 3.0]
    """
    number("radius", radius)
    choice("norm", norm, ("l2", "linf"))
    center = point.detach().cpu().double().flatten()
    inside, fixed = narrowed(levels, center, radius, norm)
    found: Tight = tight_upper(inside, steps=steps)
    return Local(found.upper, found.outputs, fixed)


def narrowed(levels: Levels, center: Tensor, radius: float, norm: Norm) -> tuple[Levels, float]:
    """Replace slopes by those on the intervals that units reach; return the share that is one number.

    Args:
        levels: The network.
        center: The flat input, in double precision.
        radius: Of the ball (``"l2"``), or half the side of the box (``"linf"``).
        norm: Which of the two.
    """
    ball = radius if norm == "l2" else radius * math.sqrt(len(center))
    state, low, high = center, center - radius, center + radius
    moves, made, fixed, total = Moves.of_input(len(center)), list[Level](), 0, 0
    for level in levels.levels:
        units = level.affine.values(state[None])[0]
        reach = ball * _roots(level, moves)
        middle = level.affine.values((low + high)[None] / 2)[0]
        wide = level.affine.matrix.abs() @ ((high - low) / 2)
        bottom, top = (
            torch.maximum(units - reach, middle - wide),
            torch.minimum(units + reach, middle + wide),
        )
        extra = _RESERVE * (1 + bottom.abs() + top.abs())
        bottom, top = bottom - extra, top + extra
        new = _with_slopes(level, bottom, top)
        if level.sees is None:
            bends = level.low < level.high
            fixed += int((bends & (new.low == new.high)).sum())
            total += int(bends.sum())
        made.append(new)
        state = level.bend(units[None])[0]
        low, high = _ends(new, units, state, bottom, top)
        part = Levels((new,), level.affine)
        moves = _next(part, moves)
    return Levels(tuple(made), levels.last), fixed / max(1, total)


def _roots(level: Level, moves: Moves) -> Tensor:
    """Return by how much each unit moves per unit of distance, at most."""
    weight = level.affine.matrix
    squares = weight.square() @ moves.diagonal[moves.places]
    if moves.base is not None:
        squares = squares + ((weight @ moves.base) * weight).sum(1)
    if moves.left is not None and moves.factor is not None:
        moved = weight * moves.left if moves.left.ndim == 1 else weight @ moves.left
        half = torch.linalg.solve_triangular(moves.factor, moved.T, upper=False)
        squares = squares + half.square().sum(0)
    return squares.clamp_min(0).sqrt() * (1 + _RESERVE)


def _with_slopes(level: Level, bottom: Tensor, top: Tensor) -> Level:
    low, high = level.low.clone(), level.high.clone()
    if level.sees is not None:
        return level
    for piece in level.pieces:
        if piece.node is None:
            continue
        own = slopes_between(
            piece.node.name,
            lambda row, p=piece: p.bend(row[None])[0],  # type: ignore[misc]
            bottom[piece.place],
            top[piece.place],
        )
        if own is not None:
            low[piece.place] = torch.maximum(own[0], low[piece.place])
            high[piece.place] = torch.minimum(own[1], high[piece.place])
    return dataclasses.replace(level, low=low, high=high)


def _ends(
    level: Level, units: Tensor, state: Tensor, bottom: Tensor, top: Tensor
) -> tuple[Tensor, Tensor]:
    """Return intervals of the new state."""
    far = torch.maximum(units - bottom, top - units)
    if level.sees is not None:
        most = (level.sees * (far * level.high)).amax(1)
        return state - most, state + most
    wide = torch.maximum(level.low.abs(), level.high.abs()) * far
    low, high = state - wide, state + wide
    for piece in level.pieces:
        if piece.node is None or piece.node.name in _MONOTONE:
            own = piece.bend(torch.stack([bottom, top])[:, piece.place])
            rises = level.low[piece.place] >= 0  # a leaky ReLU may fall below zero
            low[piece.place] = torch.where(rises, own[0], low[piece.place])
            high[piece.place] = torch.where(rises, own[1], high[piece.place])
    return low, high


def _next(part: Levels, moves: Moves) -> Moves:
    level = part.levels[0]
    group = Groups.of(level, shared=True)
    (log,) = feasible(part, [group], moves)
    return behind(level, moves, log, group)


@implements("S5", cites=("tsuzuku2018lipschitz",))
def certified_radii(
    logits: Tensor, targets: Tensor, *, pairs: Tensor | None = None, constant: float = math.inf
) -> Tensor:
    r"""Return how far each input may move, in Euclidean norm, with its prediction certainly right.

    Formula: $\min_{k \neq y} \frac{f_y(x) - f_k(x)}{L_{yk}}, \quad L_{yk} \le \sqrt 2 L$

    Reading: No attack within the radius can succeed, if the constants hold around the input. Wrong
    predictions have a radius of zero.

    Assumes: Constants that hold for all inputs within the radius; one logit per class.

    Args:
        logits: The outputs, (samples, classes).
        targets: The classes.
        pairs: The constants of the differences of outputs; √2 times ``constant`` if None.
        constant: The Lipschitz constant of all outputs together.

    >>> logits = torch.tensor([[3.0, 1.0], [0.0, 1.0]])
    >>> radii = certified_radii(logits, torch.tensor([0, 0]), constant=2**0.5)
    >>> [round(radius, 6) for radius in radii.tolist()]
    [1.0, 0.0]
    """
    logits, rows = logits.detach().cpu().double(), torch.arange(len(logits))
    targets = targets.cpu()
    margins = logits[rows, targets][:, None] - logits
    divisors = (
        torch.full_like(margins, math.sqrt(2) * constant) if pairs is None else pairs[targets]
    )
    radii = margins / divisors
    radii[rows, targets] = math.inf
    return radii.amin(1).clamp_min(0)


@dataclasses.dataclass(frozen=True)
class Around:
    """A certified radius of one prediction, and the ball that gave it.

    Args:
        radius: The prediction cannot change within this Euclidean distance.
        ball: The radius of the ball.
        local: The bound in the ball.
    """

    radius: float
    ball: float
    local: Local


@implements("S5", cites=("tsuzuku2018lipschitz", "huang2021training"))
def local_radius(
    levels: Levels,
    point: Tensor,
    target: int,
    *,
    start: float,
    ball: float | None = None,
    tries: int = 6,
    steps: int = 15,
) -> Around:
    r"""Find a certified radius of one prediction with constants of balls around it.

    Formula: $\max_\epsilon \min\!\left(\epsilon, \min_k \frac{f_y(x) - f_k(x)}{L_{yk}(\epsilon)}\right)$

    Reading: At least the radius of the global constant, if that is ``start``. Small balls have small
    constants but end early, so that radii are tried by doubling and halving.

    Assumes: A start that is certified, and one logit per class.

    Args:
        levels: The network.
        point: The input.
        target: Its class.
        start: A radius that is certified already; a search needs one above zero.
        ball: The radius of the only ball to try; by default the best is searched.
        tries: How many balls to try otherwise.
        steps: Steps that improve the multipliers of each.
    """
    logits = levels.run(point.detach().cpu().double().flatten()[None])

    def tried(size: float) -> tuple[float, Around]:
        local = local_upper(levels, point, size, steps=steps)
        pairs = pair_constants(local.outputs)
        reach = float(certified_radii(logits, torch.tensor([target]), pairs=pairs))
        return reach, Around(max(start, min(size, reach)), size, local)

    if ball is not None or start <= 0:
        return tried(start if ball is None else ball)[1]
    found, low, high, size = list[Around](), start, math.inf, 2 * start
    for _ in range(max(1, tries)):
        reach, around = tried(size)
        found.append(around)
        low, high = (size, high) if reach >= size else (low, size)
        best = max(found, key=lambda one: one.radius)
        size = 2 * low if high == math.inf else (max(low, best.radius) + high) / 2
    # Without a gain, the ball of the start itself tells most.
    return best if best.radius > start else tried(start)[1]
