"""The largest loss in a neighborhood of the weights, climbed from vertex to vertex."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mindgap.core import Batch, evaluating, implements, integer
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import differentiating

Evaluate = Callable[[Tensor], tuple[float, Tensor]]
Vertex = Callable[[Tensor], Tensor]
NEAR = 0.01  # of the rise: what another step could add, to first order, where a climb has converged


class _Climbed(NamedTuple):
    """Where a climb ended.

    Args:
        value: The largest value found.
        place: Where it was found.
        converged: Whether the slope there promises less than a hundredth of the rise for a step to
            any other point of the set.
    """

    value: float
    place: Tensor
    converged: bool


@implements("E7", cites=("keskar2017large", "frank1956algorithm"))
def climb(evaluate: Evaluate, vertex: Vertex, start: Tensor, steps: int) -> _Climbed:
    r"""Search the largest value in a convex set by conditional gradients.

    Formula: $z_{t+1} = z_t + \eta_t (v_t - z_t), \quad v_t = \arg\max_{v \in C} \langle v, \nabla
    f(z_t) \rangle$

    Reading: Full steps, η = 1, never descend where f is convex, as the loss is around a minimum. A
    step that would descend is halved instead. The search ends early at a vertex that is its own
    farthest point, where no further step could move. Every value is reached inside the set, so the result
    is a lower bound on the maximum.

    Assumes: A convex set that contains the initial point.

    Args:
        evaluate: Computes value and gradient at a point.
        vertex: Returns the point of the set that is farthest along a gradient.
        start: The initial point.
        steps: How many further points are tried.

    Returns:
        The largest value found, where, and whether a step could still add to it.

    >>> square = lambda z: (float(z.square().sum()), 2 * z)
    >>> climb(square, torch.sign, torch.tensor([0.1, -0.1]), 3)
    _Climbed(value=2.0, place=tensor([ 1., -1.]), converged=True)
    """
    first, gradient = evaluate(start)
    best, place, rate = first, start, 1.0
    for _ in range(integer("steps", steps)):
        corner = vertex(gradient)
        if torch.equal(corner, place):  # every further trial would be this place
            break
        trial = place + rate * (corner - place)
        value, slope = evaluate(trial)
        if value > best:
            place, best, gradient = trial, value, slope
        else:
            rate /= 2
    promised = float((gradient * (vertex(gradient) - place)).sum())
    return _Climbed(best, place, promised <= NEAR * (best - first))


def box(gradient: Tensor) -> Tensor:
    """Return the corner of the box [−1, 1] that is farthest along a gradient.

    >>> box(torch.tensor([0.5, -2.0, 0.0])).tolist()
    [1.0, -1.0, 0.0]
    """
    return gradient.sign()


def ball(gradient: Tensor) -> Tensor:
    """Return the point of the unit ball that is farthest along a gradient.

    >>> ball(torch.tensor([3.0, 4.0])).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    length: Tensor = torch.linalg.vector_norm(gradient)
    return gradient / length.clamp_min(torch.finfo(gradient.dtype).tiny)


@dataclasses.dataclass(frozen=True)
class ScaledLoss:
    """The mean loss of some batches at w + scale · z, in double precision, for :func:`climb`.

    Args:
        flat: The loss.
        scale: One factor per weight.
        batches: The samples.
    """

    flat: FlatLoss
    scale: Tensor
    batches: Sequence[Batch]

    def __call__(self, place: Tensor) -> tuple[float, Tensor]:
        """Return the loss and its gradient by z."""
        value, gradient = 0.0, torch.zeros_like(self.scale)
        for batch in self.batches:
            at = self._at(place).requires_grad_()
            with differentiating(self.flat):
                losses = self.flat.losses(at, batch)
                (slope,) = torch.autograd.grad(losses.sum(), at)
            value += float(losses.detach().double().sum())
            gradient += slope.double()
        return value / self.samples, gradient * self.scale / self.samples

    def value(self, place: Tensor) -> float:
        """Return the loss alone, which takes a third of the time."""
        at = self._at(place)
        with evaluating(self.flat.model):
            losses = [self.flat.losses(at, batch).double().sum() for batch in self.batches]
        return sum(map(float, losses)) / self.samples

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return sum(len(batch.target) for batch in self.batches)

    def _at(self, place: Tensor) -> Tensor:
        point = self.flat.point
        return (point.double() + self.scale * place).to(point)
