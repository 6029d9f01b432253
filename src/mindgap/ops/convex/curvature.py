"""Newton steps for weighted softmax losses, by preconditioned conjugate gradients."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

DENSE = 3000  # most parameters of a head whose whole Hessian is factored
BLOCKS = 2**25  # most entries of all blocks, one per class, that are factored
SHARE = 0.99  # of the curvature, which the samples kept for a factor must carry
JITTER = 1e-12


@dataclasses.dataclass(frozen=True)
class Curvature:
    """The Hessians of several heads.

    Attributes:
        rows: Features (n, r).
        probabilities: Softmax outputs (n, heads, classes).
        weights: Sample weights (n, heads).
        penalty: Quadratic penalty (r,).
    """

    rows: Tensor
    probabilities: Tensor
    weights: Tensor
    penalty: Tensor

    def times(self, heads: Tensor) -> Tensor:
        """Multiply every Hessian with its own head (heads, classes, r)."""
        n, count, classes = self.probabilities.shape
        moved = (
            (self.rows @ heads.reshape(count * classes, -1).T)
            .view(n, count, classes)
            .mul_(self.probabilities)
        )
        moved.addcmul_(self.probabilities, moved.sum(2, keepdim=True), value=-1).mul_(
            self.weights[:, :, None]
        )
        return (moved.view(n, -1).T @ self.rows).view_as(heads) + self.penalty * heads

    def preconditioner(self, head: int) -> "Preconditioner":
        """Build an approximate inverse of one head's Hessian.

        It uses the whole Hessian, its diagonal blocks or its diagonal, as memory allows. Samples
        that are classified with near certainty add hardly any curvature. They are left out, and
        their share is spread evenly over the coordinates, in which the rows are uncorrelated.
        """
        probabilities, weights = self.probabilities[:, head], self.weights[:, head]
        curvature = weights * (1 - probabilities.square().sum(1))
        order = curvature.argsort(descending=True, stable=True)
        kept = order[: int((curvature[order].cumsum(0) < SHARE * curvature.sum()).sum()) + 1]
        rest = float(curvature.sum() - curvature[kept].sum()) / probabilities.shape[1]
        return _inverse(
            self.rows[kept],
            probabilities[kept],
            weights[kept],
            self.penalty + rest,
            len(kept) / len(order),
        )


@dataclasses.dataclass(frozen=True)
class Preconditioner:
    """An approximate inverse Hessian, and its cost in Hessian products."""

    apply: Callable[[Tensor], Tensor]
    cost: int


def _inverse(
    rows: Tensor, probabilities: Tensor, weights: Tensor, penalty: Tensor, share: float
) -> Preconditioner:
    classes, r = probabilities.shape[1], rows.shape[1]
    if classes * r <= DENSE:
        return Preconditioner(
            _dense(rows, probabilities, weights, penalty), int(share * (classes + 1) * r / 8)
        )
    own = probabilities * (1 - probabilities) * weights[:, None]
    if classes * r * r <= BLOCKS:
        return Preconditioner(_blocks(rows, own, penalty), int(share * r / 4))
    diagonal = own.T @ rows.square() + penalty
    diagonal += JITTER * diagonal.mean() + torch.finfo(diagonal.dtype).tiny
    return Preconditioner(lambda vectors: vectors / diagonal, 1)


def _dense(
    rows: Tensor, probabilities: Tensor, weights: Tensor, penalty: Tensor
) -> Callable[[Tensor], Tensor]:
    classes, r = probabilities.shape[1], rows.shape[1]
    hessian = rows.new_zeros(classes, r, classes, r)
    for first in range(classes):
        for second in range(first, classes):
            same = (first == second) * 1.0
            factor = weights * probabilities[:, first] * (same - probabilities[:, second])
            hessian[first, :, second] = hessian[second, :, first] = (
                rows * factor[:, None]
            ).T @ rows
    size = float(hessian.view(classes * r, -1).diagonal().mean())
    # Adding the same vector to all classes changes no probability, so the Hessian is singular along
    # it. Any positive curvature there keeps the factor finite.
    hessian += (size / classes) * torch.eye(r, dtype=rows.dtype)[None, :, None]
    matrix = hessian.view(classes * r, -1)
    matrix.diagonal().add_(penalty.repeat(classes) + JITTER * size + torch.finfo(rows.dtype).tiny)
    factor = _factor(matrix)

    def apply(vectors: Tensor) -> Tensor:
        return torch.cholesky_solve(vectors.flatten(1).T, factor).T.view_as(vectors)

    return apply


def _blocks(rows: Tensor, own: Tensor, penalty: Tensor) -> Callable[[Tensor], Tensor]:
    blocks = torch.stack([(rows * factor[:, None]).T @ rows for factor in own.T])
    blocks.diagonal(dim1=1, dim2=2).add_(penalty)
    size = blocks.diagonal(dim1=1, dim2=2).mean(1, keepdim=True)
    blocks.diagonal(dim1=1, dim2=2).add_(JITTER * size + torch.finfo(rows.dtype).tiny)
    factor = _factor(blocks)

    def apply(vectors: Tensor) -> Tensor:
        return torch.cholesky_solve(vectors.permute(1, 2, 0), factor).permute(2, 0, 1)

    return apply


def _factor(matrix: Tensor) -> Tensor:
    """Compute a Cholesky factor; a matrix that rounding made indefinite gets a larger diagonal."""
    size = matrix.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    shift = 0.0
    while True:
        moved = matrix + torch.diag_embed(shift * size.expand(matrix.shape[:-1]))
        found = torch.linalg.cholesky_ex(moved)
        if not bool(found.info.any()):
            factor: Tensor = found.L
            return factor
        shift = max(10 * shift, 1e-10)


def conjugate_gradients(
    curvature: Curvature,
    preconditioner: Preconditioner,
    gradient: Tensor,
    forcing: Tensor,
    limit: int = 250,
) -> tuple[Tensor, int]:
    """Compute Newton steps of all heads at once by preconditioned conjugate gradients.

    Args:
        curvature: The Hessians.
        preconditioner: An approximate inverse, shared by all heads.
        gradient: Gradients (heads, classes, r).
        forcing: Factor, per head, by which the norm of the residual must fall.
        limit: Largest number of Hessian products.

    Returns:
        The steps, and the number of products used.
    """
    step, residual = torch.zeros_like(gradient), -gradient
    solved = preconditioner.apply(residual)
    direction, size = solved, _dot(residual, solved)
    target, used = forcing.square() * size, 0
    active = size > 0
    while bool(active.any()) and used < limit:
        product = curvature.times(direction)
        used += 1
        along = _dot(direction, product)
        # Finished heads stay in the batch with steps of length zero. A curvature that is not
        # positive is rounding: the head keeps the step it has.
        length = torch.where(active & (along > 0), size / along, torch.zeros_like(size))
        length = length[:, None, None]
        step, residual = step + length * direction, residual - length * product
        solved = preconditioner.apply(residual)
        new = _dot(residual, solved)
        active = active & (along > 0) & (new > target)
        direction = (
            solved
            + torch.where(size > 0, new / size, torch.zeros_like(size))[:, None, None] * direction
        )
        size = new
    return step, used


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum((1, 2))
