"""Weighted softmax regression to its optimum: Newton steps by preconditioned conjugate gradients, many at once."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from mindgap.ops.convex.curvature import Curvature, Preconditioner, conjugate_gradients
from mindgap.ops.convex.squares import Basis

ITERATIONS = 100
ARMIJO = 1e-4
ROUNDING = 1e-14


@dataclasses.dataclass
class State:
    """Where some heads stand: coordinates (heads, classes, r), logits (n, heads, classes), loss and gradient."""

    heads: Tensor
    logits: Tensor
    value: Tensor
    gradient: Tensor
    chance: Tensor

    @property
    def steepness(self) -> Tensor:
        """The largest entry of each head's gradient."""
        return self.gradient.abs().amax((1, 2))

    def only(self, kept: Tensor) -> State:
        """Some of the heads."""
        return State(
            self.heads[kept],
            self.logits[:, kept],
            self.value[kept],
            self.gradient[kept],
            self.chance[:, kept],
        )


@dataclasses.dataclass
class Softmax:
    """The problem: rows (n, r), classes (n,), weights (n, heads) that sum to one a head, penalty (r,)."""

    basis: Basis
    target: Tensor
    weights: Tensor
    penalty: Tensor

    def only(self, kept: Tensor) -> Softmax:
        """The problem of some of the heads."""
        return Softmax(self.basis, self.target, self.weights[:, kept], self.penalty)

    def value(self, heads: Tensor, logits: Tensor) -> Tensor:
        """Weighted mean loss plus penalty of every head."""
        right = logits.gather(2, self.target[:, None, None].expand(-1, logits.shape[1], 1))[:, :, 0]
        losses = logits.logsumexp(2) - right
        return (self.weights * losses).sum(0) + 0.5 * (self.penalty * heads.square()).sum((1, 2))

    def state(self, heads: Tensor, logits: Tensor | None = None) -> State:
        """Loss, probabilities and gradient at some heads."""
        if logits is None:
            logits = self.logits(heads)
        chance = logits.softmax(2)
        error = chance.clone()
        error[torch.arange(len(error)), :, self.target] -= 1
        error.mul_(self.weights[:, :, None])
        gradient = (error.view(len(error), -1).T @ self.basis.rows).view_as(
            heads
        ) + self.penalty * heads
        return State(heads, logits, self.value(heads, logits), gradient, chance)

    def logits(self, heads: Tensor) -> Tensor:
        """Logits (n, heads, classes)."""
        return (self.basis.rows @ heads.flatten(0, 1).T).view(len(self.target), *heads.shape[:2])

    def curvature(self, state: State) -> Curvature:
        """The Hessians at a state."""
        return Curvature(self.basis.rows, state.chance, self.weights, self.penalty)


@dataclasses.dataclass
class Descent:
    """What the heads share on their way: the preconditioner and the products spent since it was made."""

    preconditioner: Preconditioner | None = None
    spent: int = 0
    products: int = 0


def minimize(
    problem: Softmax, heads: Tensor, tolerance: float, progress: Descent
) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates, gradients' largest entries and whether each is at most ``tolerance``.

    Heads that are done leave the batch. ``progress`` brings a preconditioner from an earlier call.
    """
    heads = heads - heads.mean(
        1, keepdim=True
    )  # a shift of all classes alike is no freedom of the optimum
    done, steepness = heads.clone(), heads.new_full((len(heads),), torch.inf)
    left, state = torch.arange(len(heads)), problem.state(heads)
    for _ in range(ITERATIONS):
        done[left], steepness[left] = state.heads, state.steepness
        open_ = state.steepness > tolerance
        if not bool(open_.all()):
            left, problem, state = left[open_], problem.only(open_), state.only(open_)
        if not len(left):
            break
        state, moved = _newton(problem, state, progress)
        if not bool(moved.any()):
            break
    return done, steepness, steepness <= tolerance


def _newton(problem: Softmax, state: State, progress: Descent) -> tuple[State, Tensor]:
    curvature = problem.curvature(state)
    if progress.preconditioner is None or progress.spent > progress.preconditioner.cost:
        progress.preconditioner = curvature.preconditioner(int(state.steepness.argmax()))
        progress.spent = 0
    forcing = state.steepness.sqrt().clamp(max=0.1)
    step, used = conjugate_gradients(curvature, progress.preconditioner, state.gradient, forcing)
    progress.spent += used * len(step)
    progress.products += used * len(step)
    return _line_search(problem, state, step)


def _line_search(problem: Softmax, state: State, step: Tensor) -> tuple[State, Tensor]:
    """Halve the steps until each loss falls as Armijo asks; logits are linear, so no product is needed."""
    change, slope = problem.logits(step), (state.gradient * step).sum((1, 2))
    length = torch.ones_like(slope)
    slack = ROUNDING * (1 + state.value.abs())
    for _ in range(40):
        heads = state.heads + length[:, None, None] * step
        logits = torch.addcmul(state.logits, change, length[:, None])
        bad = problem.value(heads, logits) > state.value + ARMIJO * length * slope + slack
        if not bool(bad.any()):
            break
        length = torch.where(bad, length / 2, length)
    length = torch.where(bad, torch.zeros_like(length), length)
    heads = state.heads + length[:, None, None] * step
    logits = torch.addcmul(state.logits, change, length[:, None])
    return problem.state(heads, logits), length > 0
