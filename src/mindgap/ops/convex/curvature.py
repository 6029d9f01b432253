"""Curvature of weighted softmax losses: products with the Hessian, and its factors that precondition them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

DENSE = 3000  # up to so many numbers a head, the whole Hessian is factored
BLOCKS = 2**25  # up to so many numbers, one block per class is factored
SHARE = 0.99  # of the curvature that the samples kept for a factor make up
JITTER = 1e-12


@dataclasses.dataclass(frozen=True)
class Curvature:
    """The Hessians of several heads: ``rows`` (n, r), ``chance`` (n, heads, classes), ``weights`` (n, heads)."""

    rows: Tensor
    chance: Tensor
    weights: Tensor
    penalty: Tensor

    def times(self, heads: Tensor) -> Tensor:
        """The product of every Hessian with its own head (heads, classes, r)."""
        n, count, classes = self.chance.shape
        moved = (
            (self.rows @ heads.reshape(count * classes, -1).T)
            .view(n, count, classes)
            .mul_(self.chance)
        )
        moved.addcmul_(self.chance, moved.sum(2, keepdim=True), value=-1).mul_(
            self.weights[:, :, None]
        )
        return (moved.view(n, -1).T @ self.rows).view_as(heads) + self.penalty * heads

    def preconditioner(self, head: int) -> Preconditioner:
        """An approximate inverse of one head's Hessian: the whole, its blocks or its diagonal, as memory allows.

        Samples that are surely right hardly bend the loss. They are left out, and their share of
        the curvature is spread evenly over the coordinates, in which the rows are uncorrelated.
        """
        chance, weights = self.chance[:, head], self.weights[:, head]
        bend = weights * (1 - chance.square().sum(1))
        order = bend.argsort(descending=True, stable=True)
        kept = order[: int((bend[order].cumsum(0) < SHARE * bend.sum()).sum()) + 1]
        rest = float(bend.sum() - bend[kept].sum()) / chance.shape[1]
        return _inverse(
            self.rows[kept],
            chance[kept],
            weights[kept],
            self.penalty + rest,
            len(kept) / len(order),
        )


@dataclasses.dataclass(frozen=True)
class Preconditioner:
    """An approximate inverse Hessian, and what it cost in products with a Hessian."""

    apply: Callable[[Tensor], Tensor]
    cost: int


def _inverse(
    rows: Tensor, chance: Tensor, weights: Tensor, penalty: Tensor, share: float
) -> Preconditioner:
    classes, r = chance.shape[1], rows.shape[1]
    if classes * r <= DENSE:
        return Preconditioner(
            _dense(rows, chance, weights, penalty), int(share * (classes + 1) * r / 8)
        )
    own = chance * (1 - chance) * weights[:, None]
    if classes * r * r <= BLOCKS:
        return Preconditioner(_blocks(rows, own, penalty), int(share * r / 4))
    diagonal = own.T @ rows.square() + penalty
    diagonal += JITTER * diagonal.mean() + torch.finfo(diagonal.dtype).tiny
    return Preconditioner(lambda vectors: vectors / diagonal, 1)


def _dense(
    rows: Tensor, chance: Tensor, weights: Tensor, penalty: Tensor
) -> Callable[[Tensor], Tensor]:
    classes, r = chance.shape[1], rows.shape[1]
    hessian = rows.new_zeros(classes, r, classes, r)
    for first in range(classes):
        for second in range(first, classes):
            factor = weights * chance[:, first] * ((first == second) * 1.0 - chance[:, second])
            hessian[first, :, second] = hessian[second, :, first] = (
                rows * factor[:, None]
            ).T @ rows
    size = float(hessian.view(classes * r, -1).diagonal().mean())
    # A shift of all classes alike changes no probability: any positive curvature along it keeps the
    # factor finite.
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
    """A Cholesky factor; what rounding made indefinite gets a larger diagonal."""
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
    """Newton steps of all heads at once, each until its residual fell by ``forcing``; and the number of products."""
    step, residual = torch.zeros_like(gradient), -gradient
    solved = preconditioner.apply(residual)
    direction, size = solved, _dot(residual, solved)
    target, used = forcing.square() * size, 0
    active = size > 0
    while bool(active.any()) and used < limit:
        product = curvature.times(direction)
        used += 1
        bend = _dot(direction, product)
        length = torch.where(active & (bend > 0), size / bend, torch.zeros_like(size))[
            :, None, None
        ]
        step, residual = step + length * direction, residual - length * product
        solved = preconditioner.apply(residual)
        new = _dot(residual, solved)
        active = active & (bend > 0) & (new > target)
        direction = (
            solved
            + torch.where(size > 0, new / size, torch.zeros_like(size))[:, None, None] * direction
        )
        size = new
    return step, used


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum((1, 2))
