"""Weighted softmax regression by Newton's method, for many sets of weights at once."""

import dataclasses

import torch
from torch import Tensor

from mindgap.ops.convex.curvature import Curvature, Preconditioner, conjugate_gradients
from mindgap.ops.convex.squares import Basis

ITERATIONS = 100
ARMIJO = 1e-4  # share of the predicted decrease that a step must achieve
ROUNDING = 1e-14  # relative error of a loss in double precision


@dataclasses.dataclass
class State:
    """Some heads and their losses.

    Attributes:
        heads: Coordinates (heads, classes, r).
        logits: Logits (n, heads, classes).
        value: Penalized losses (heads,).
        gradient: Gradients, shaped as the coordinates.
        probabilities: Softmax of the logits.
    """

    heads: Tensor
    logits: Tensor
    value: Tensor
    gradient: Tensor
    probabilities: Tensor

    @property
    def gradient_norm(self) -> Tensor:
        """The maximum norm of each head's gradient."""
        return self.gradient.abs().amax((1, 2))

    def only(self, kept: Tensor) -> "State":
        """Select some of the heads."""
        return State(
            self.heads[kept],
            self.logits[:, kept],
            self.value[kept],
            self.gradient[kept],
            self.probabilities[:, kept],
        )


@dataclasses.dataclass
class Softmax:
    """The problem of several heads on the same samples.

    Attributes:
        basis: Coordinates of the features.
        target: Classes (n,).
        weights: Sample weights (n, heads), which sum to one per head.
        penalty: Quadratic penalty (r,).
    """

    basis: Basis
    target: Tensor
    weights: Tensor
    penalty: Tensor

    def only(self, kept: Tensor) -> "Softmax":
        """Select the problem of some of the heads."""
        return Softmax(self.basis, self.target, self.weights[:, kept], self.penalty)

    def value(self, heads: Tensor, logits: Tensor) -> Tensor:
        """Compute the weighted mean loss plus penalty of every head."""
        right = logits.gather(2, self.target[:, None, None].expand(-1, logits.shape[1], 1))[:, :, 0]
        losses = logits.logsumexp(2) - right
        return (self.weights * losses).sum(0) + 0.5 * (self.penalty * heads.square()).sum((1, 2))

    def state(self, heads: Tensor, logits: Tensor | None = None) -> State:
        """Compute loss, probabilities and gradient at some heads."""
        if logits is None:
            logits = self.logits(heads)
        probabilities = logits.softmax(2)
        error = probabilities.clone()
        error[torch.arange(len(error)), :, self.target] -= 1
        error.mul_(self.weights[:, :, None])
        gradient = (error.view(len(error), -1).T @ self.basis.rows).view_as(heads)
        gradient = gradient + self.penalty * heads
        return State(heads, logits, self.value(heads, logits), gradient, probabilities)

    def logits(self, heads: Tensor) -> Tensor:
        """Compute the logits (n, heads, classes)."""
        return (self.basis.rows @ heads.flatten(0, 1).T).view(len(self.target), *heads.shape[:2])

    def curvature(self, state: State) -> Curvature:
        """Return the Hessians at a state."""
        return Curvature(self.basis.rows, state.probabilities, self.weights, self.penalty)


@dataclasses.dataclass
class Descent:
    """What successive minimizations share: a preconditioner and how much it has been used.

    Attributes:
        preconditioner: The one in use.
        spent: Hessian products since it was built.
        products: Hessian products in total.
    """

    preconditioner: Preconditioner | None = None
    spent: int = 0
    products: int = 0


def minimize(
    problem: Softmax, heads: Tensor, tolerance: float, descent: Descent
) -> tuple[Tensor, Tensor, Tensor]:
    """Minimize the losses of several heads; a head that is done leaves the batch.

    Args:
        problem: The losses.
        heads: Initial coordinates (heads, classes, r).
        tolerance: Largest gradient norm at which a head is done.
        descent: Holds the preconditioner of earlier calls, and receives the new one.

    Returns:
        Coordinates, gradient norms, and whether each norm is at most ``tolerance``.
    """
    # Adding the same vector to all classes changes no probability: fix it at mean zero.
    heads = heads - heads.mean(1, keepdim=True)
    done, norm = heads.clone(), heads.new_full((len(heads),), torch.inf)
    left, state = torch.arange(len(heads)), problem.state(heads)
    for _ in range(ITERATIONS):
        done[left], norm[left] = state.heads, state.gradient_norm
        open_ = state.gradient_norm > tolerance
        if not bool(open_.all()):
            left, problem, state = left[open_], problem.only(open_), state.only(open_)
        if not len(left):
            break
        state, moved = _newton(problem, state, descent)
        if not bool(moved.any()):
            break
    return done, norm, norm <= tolerance


def _newton(problem: Softmax, state: State, descent: Descent) -> tuple[State, Tensor]:
    curvature = problem.curvature(state)
    # An old preconditioner is used until the products spent with it would have paid for a new one.
    if descent.preconditioner is None or descent.spent > descent.preconditioner.cost:
        descent.preconditioner = curvature.preconditioner(int(state.gradient_norm.argmax()))
        descent.spent = 0
    # Far from the optimum an accurate Newton step is wasted; a tolerance that shrinks like the root
    # of the gradient keeps the convergence superlinear.
    forcing = state.gradient_norm.sqrt().clamp(max=0.1)
    step, used = conjugate_gradients(curvature, descent.preconditioner, state.gradient, forcing)
    descent.spent += used * len(step)
    descent.products += used * len(step)
    return _line_search(problem, state, step)


def _line_search(problem: Softmax, state: State, step: Tensor) -> tuple[State, Tensor]:
    """Halve the steps until each loss satisfies Armijo's condition.

    Logits are linear in the heads, so trying another length needs no matrix product.
    """
    change, slope = problem.logits(step), (state.gradient * step).sum((1, 2))
    length = torch.ones_like(slope)
    # Near the optimum the decrease is smaller than the rounding of the loss. Without slack the
    # search would reject good steps there and stop before the gradient is small.
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
