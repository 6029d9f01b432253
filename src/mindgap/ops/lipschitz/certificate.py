r"""A certificate of a Lipschitz constant: how far the states of a network can move, level by level.

Let x and x' be two inputs, and let a state move by s. A matrix Σ is a certificate for the state if
s sᵀ ⪯ Σ ‖x − x'‖² always. For the input, Σ = I. Behind an affine map, P = WΣWᵀ is one. An activation
with slopes from a to b is φ(v) = mv + rψ(v), with m = (a + b)/2, r = (b − a)/2 and |ψ'| ≤ 1. For any
positive diagonal τ with τ ≻ P (the multipliers),

    Σ' = m (P + P (τ − P)⁻¹ P) m + r² τ = mτ (τ − P)⁻¹ τm − ab τ

is a certificate of its results. A max-pooling moves each result by no more than its window moves, so
that Σ' = diag(1/t) is one if P ≺ 1/t̃, where t̃ adds up the weights t of the windows that see a unit.
This is the linear matrix inequality of LipSDP, eliminated block by block: L² = λmax(WΣWᵀ) at the end,
and with τ = 2/Λ it is the recursion X = 2Λ − ΛPΛ for ReLU. Every feasible τ certifies.
"""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.ops.lipschitz.affine import Affine
from mindgap.ops.lipschitz.levels import Level, Levels
from mindgap.ops.norms.singular import MARGIN

UNIT = 2.0**-53


class Infeasible(Exception):  # noqa: N818  (a verdict, not a fault)
    """Multipliers that certify nothing: a matrix was not positive definite."""


@dataclasses.dataclass(frozen=True)
class Moves:
    """Σ = S + G (CCᵀ)⁻¹ Gᵀ + diag(d), in parts, so that no large matrix has to be formed.

    Args:
        diagonal: d by groups.
        places: The group of each state.
        base: S; None for zero.
        left: G; a vector stands for a diagonal matrix, None for zero.
        factor: C, lower triangular.
        barrier: −log det of the matrices whose definiteness makes it a certificate, up to here.
    """

    diagonal: Tensor
    places: Tensor
    base: Tensor | None = None
    left: Tensor | None = None
    factor: Tensor | None = None
    barrier: Tensor | float = 0.0

    @classmethod
    def of_input(cls, width: int) -> "Moves":
        """Return the certificate of the input: Σ = I."""
        return cls(torch.ones(1, dtype=torch.double), torch.zeros(width, dtype=torch.long))

    def through(self, affine: Affine, guard: bool = False) -> Tensor:
        """Compute P = WΣWᵀ; a guard adds a bound of the rounding errors.

        Args:
            affine: The map.
            guard: Whether P must be an upper bound in spite of rounding.
        """
        weight = affine.matrix
        found, error = affine.outer(self.diagonal, self.places), 0.0
        if guard:
            error = _norm(weight) ** 2 * float(self.diagonal.abs().max())
        if self.base is not None:
            found = found + weight @ self.base @ weight.T
            error += 2 * _norm(weight) ** 2 * _norm(self.base) if guard else 0.0
        if self.left is not None and self.factor is not None:
            moved = weight * self.left if self.left.ndim == 1 else affine.times(self.left)
            half = torch.linalg.solve_triangular(self.factor, moved.T, upper=False)
            found = found + half.T @ half
            if guard:
                error += self._solving(half, _norm(weight) * _norm(self.left))
        found = (found + found.T) / 2
        if not guard:
            return found
        size = sum(weight.shape) + 16
        return found + 4 * size * UNIT * error * torch.eye(len(found), dtype=torch.double)

    def _solving(self, half: Tensor, product: float) -> float:
        """Bound what rounding does to HᵀH, H = C⁻¹(WG)ᵀ, in units of the size times the precision."""
        assert self.factor is not None
        size = len(self.factor)
        inverse = torch.linalg.solve_triangular(
            self.factor, torch.eye(size, dtype=torch.double), upper=False
        )
        spread = 2 * _norm(inverse) * _norm(self.factor)
        if spread * 4 * (size + 16) * UNIT > 0.01:
            raise Infeasible(
                "a matrix is too close to singular for its rounding errors to be bounded"
            )
        wrong = 2 * _norm(inverse) * product + spread * _norm(half)
        return 3 * _norm(half) * wrong + _norm(half) ** 2


@dataclasses.dataclass(frozen=True)
class Groups:
    """Which units of a level share a multiplier.

    Args:
        places: The group of each new state.
        count: The number of groups.
    """

    places: Tensor
    count: int

    @classmethod
    def of(cls, level: Level, shared: bool) -> "Groups":
        """Group the states of a level by channels, or leave each alone."""
        if not shared:
            return cls(torch.arange(len(level.channels)), len(level.channels))
        names, places = level.channels.unique(return_inverse=True)
        return cls(places, len(names))


def factored(matrix: Tensor) -> Tensor:
    """Return the Cholesky factor; raise Infeasible if the matrix is not positive definite."""
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed) or not bool(torch.isfinite(factor).all()):
        raise Infeasible
    return factor


def behind(level: Level, before: Moves, logs: Tensor, groups: Groups, guard: bool = False) -> Moves:
    """Return the certificate behind a level; raise Infeasible if the multipliers are too small.

    Args:
        level: The level.
        before: The certificate of the state before it.
        logs: The logarithm of τ, by groups.
        groups: Which new states share a multiplier.
        guard: Whether the result must be certain in spite of rounding.
    """
    if level.sees is not None:
        return _behind_pool(level, before, logs, groups, guard)
    low, high = level.low, level.high
    middle, half = (low + high) / 2, (high - low) / 2
    same = bool((low == low[0]).all() and (high == high[0]).all() and half[0] > 0)
    rows, width = level.affine.matrix.shape
    if before.left is None and before.base is None and rows > width:
        if same:
            weights, places = (-logs).exp(), groups.places
            factor = _inner(level.affine, before, weights, places, guard)
            spread = float(half[0]) ** 2 * logs.exp()
        else:
            tau, places = logs.exp()[groups.places], torch.arange(rows)
            factor = _inner(level.affine, before, (half > 0) / tau, places, guard)
            spread = half.square() * tau
        left = level.affine.scaled(middle, before.diagonal[before.places].sqrt())
        return Moves(spread, places, None, left, factor, before.barrier + _barrier(factor))
    moved = before.through(level.affine, guard)
    tau = logs.exp()[groups.places]
    if same:
        scale = tau.sqrt()
        factor = _below(moved, scale, guard)
        barrier = before.barrier + _barrier(factor)
        spread = -low[0] * high[0] * logs.exp()
        return Moves(spread, groups.places, None, middle * scale, factor, barrier)
    return _mixed(before, moved, tau, middle, half, guard)


def _below(moved: Tensor, scale: Tensor, guard: bool) -> Tensor:
    """Factor I − P/(s sᵀ), which proves P ≺ s²."""
    size = len(moved)
    # Rounding of the division and of the factor (Higham, Theorem 10.3) is below this.
    reserve = 8 * (size + 16) * UNIT * size if guard else 0.0
    eye = torch.eye(size, dtype=torch.double)
    return factored((1 - reserve) * eye - moved / scale / scale[:, None])


def _inner(affine: Affine, before: Moves, weights: Tensor, places: Tensor, guard: bool) -> Tensor:
    """Factor I − √Σ Wᵀ t W √Σ for a diagonal Σ: the matrix of the shorter side, which proves P ≺ 1/t."""
    root = before.diagonal[before.places].sqrt()
    inner = affine.inner(weights, places) * root * root[:, None]
    size, reserve = len(inner), 0.0
    if guard:
        error = _norm(affine.matrix * weights[places].sqrt()[:, None] * root) ** 2
        reserve = 8 * (size + len(affine.matrix) + 16) * UNIT * (size + error)
    return factored((1 - reserve) * torch.eye(size, dtype=torch.double) - (inner + inner.T) / 2)


def _mixed(
    before: Moves, moved: Tensor, tau: Tensor, middle: Tensor, half: Tensor, guard: bool
) -> Moves:
    """Units with one slope only need no multiplier."""
    loose = half > 0
    base = middle[:, None] * moved * middle
    diagonal = torch.where(loose, half.square() * tau, torch.zeros_like(tau))
    places = torch.arange(len(tau))
    if guard:  # the products with m
        extra = 4 * UNIT * _norm(base)
        base = base + extra * torch.eye(len(base), dtype=torch.double)
    if not bool(loose.any()):
        return Moves(diagonal, places, base, barrier=before.barrier)
    scale = tau[loose].sqrt()
    factor = _below(moved[loose][:, loose], scale, guard)
    left = middle[:, None] * moved[:, loose] / scale
    return Moves(diagonal, places, base, left, factor, before.barrier + _barrier(factor))


def _behind_pool(level: Level, before: Moves, logs: Tensor, groups: Groups, guard: bool) -> Moves:
    assert level.sees is not None
    weights = (-logs).exp()[groups.places]
    # An activation that was taken up stretches by its gain.
    seen = (weights @ level.sees) * level.high.square()
    rows, width = level.affine.matrix.shape
    if before.left is None and before.base is None and rows > width:
        factor = _inner(level.affine, before, seen, torch.arange(rows), guard)
    else:
        factor = _below(before.through(level.affine, guard), seen.rsqrt(), guard)
    return Moves(logs.exp(), groups.places, barrier=before.barrier + _barrier(factor))


def _barrier(factor: Tensor) -> Tensor:
    return -2 * factor.diagonal().log().sum()


def certified(
    levels: Levels, logs: Sequence[Tensor], groups: Sequence[Groups], guard: bool = False
) -> tuple[Tensor, Tensor | float]:
    """Return P of the outputs, (f(x) − f(x'))(f(x) − f(x'))ᵀ ⪯ P ‖x − x'‖², and the barrier.

    Args:
        levels: The network.
        logs: The logarithms of the multipliers of each level.
        groups: Which states share them.
        guard: Whether P must be certain in spite of rounding.
    """
    moves = Moves.of_input(levels.width)
    for level, log, group in zip(levels.levels, logs, groups, strict=True):
        moves = behind(level, moves, log, group, guard)
    return moves.through(levels.last, guard), moves.barrier


def constant(outputs: Tensor) -> float:
    """Return the root of the largest eigenvalue, rounded up.

    >>> round(constant(4 * torch.eye(2, dtype=torch.double)), 6)
    2.0
    """
    found = float(torch.linalg.eigvalsh(outputs)[-1])
    reserve = 8 * len(outputs) * UNIT * _norm(outputs)
    return MARGIN * math.sqrt(max(found, 0.0) + reserve)


def _norm(matrix: Tensor) -> float:
    return float(matrix.detach().norm())
