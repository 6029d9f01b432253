"""Weighted least squares in closed form, for many weightings of the same samples at once."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.ops.convex_basis import Basis

NUMBERS = 2**24  # numbers of a table of products that may be held at once
ROUNDING = 1e-9
SINGULAR = 1e-6  # a pivot below it: the condition is beyond what the normal equations bear


def least_squares(basis: Basis, target: Tensor, weights: Tensor, l2: float) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates (heads, outputs, r) of the optimum for weights (n, heads) that sum to one a head, with what is left.

    What is left is the largest entry of the gradient, and whether it is no more than rounding.

    The basis is orthonormal without weights, so the normal equations' condition is at most that of the weights
    (largest over smallest), whatever the features. What samples of weight zero leave undetermined gets the smallest
    coordinates.
    """
    rows, outputs = basis.rows, target.shape[1]
    gram = _products(rows, rows, weights)
    right = _products(rows, target, weights)
    gram.diagonal(dim1=1, dim2=2).add_(0.5 * outputs * l2 * basis.penalty)
    found = _solved(gram, right)
    steepness = (gram @ found - right).abs().amax((1, 2)) * (2 / outputs)
    return found.mT, steepness, steepness <= ROUNDING * (1 + right.abs().amax((1, 2)))


def _products(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """left' diag(w) right of every column w."""
    heads, size = weights.shape[1], left.shape[1] * right.shape[1]
    total = left.new_zeros(heads, size)
    if heads <= right.shape[1] + 1:
        return torch.stack([(left * column[:, None]).T @ right for column in weights.T])
    block = max(1, NUMBERS // size)
    for a, b, w in zip(left.split(block), right.split(block), weights.split(block), strict=True):
        total += w.T @ (a[:, :, None] * b[:, None]).flatten(1)
    return total.view(heads, left.shape[1], right.shape[1])


def _solved(gram: Tensor, right: Tensor) -> Tensor:
    """Cholesky of the matrices scaled to a unit diagonal; the pseudo-inverse where one is singular."""
    tiny = torch.finfo(gram.dtype).tiny
    scale = gram.diagonal(dim1=1, dim2=2).clamp_min(tiny).rsqrt()[:, :, None]
    scaled, right = scale * gram * scale.mT, scale * right
    factor, failed = torch.linalg.cholesky_ex(scaled)
    doubtful = (failed > 0) | ~(factor.diagonal(dim1=1, dim2=2).amin(1) > SINGULAR)
    solution = torch.empty_like(right)
    solution[~doubtful] = torch.cholesky_solve(right[~doubtful], factor[~doubtful])
    solution[doubtful] = torch.linalg.pinv(scaled[doubtful], hermitian=True) @ right[doubtful]
    return scale * solution
