"""Whitened coordinates of linear heads, and weighted least squares in them, in closed form."""

import dataclasses

import torch
from torch import Tensor

NUMBERS = 2**24  # entries of a table of products that may be held at once
ROUNDING = 1e-9
SINGULAR = 1e-6  # smallest pivot at which the normal equations are accurate enough


@dataclasses.dataclass(frozen=True)
class Basis:
    r"""The whitening :math:`z = B^\top(x - \mu)`, with a last column of ones if there is a bias.

    A head is :math:`W = U B^\top`, so its logits are those of U on z, and its squared norm is a
    weighted sum of the squares of U. Directions in which no sample varies (dead units, copies) are
    left out: a penalized head has no weight along them.
    """

    rows: Tensor
    directions: Tensor
    variance: Tensor
    center: Tensor
    bias: bool

    @property
    def penalty(self) -> Tensor:
        """What a squared coordinate of U adds to the squared norm of W; the bias adds nothing."""
        own = 1 / self.variance
        return torch.cat([own, own.new_zeros(1)]) if self.bias else own

    def inward(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the coordinates of a head (outputs, features)."""
        weight = weight.detach().double()
        own = weight @ self.directions * self.variance.sqrt()
        if not self.bias:
            return own
        shift = weight @ self.center + (0.0 if bias is None else bias.detach().double())
        return torch.cat([own, shift[:, None]], 1)

    def outward(self, coordinates: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute weight (…, outputs, features) and bias (…, outputs) from coordinates."""
        own = coordinates[..., :-1] if self.bias else coordinates
        weight = (own * self.variance.rsqrt()) @ self.directions.T
        return weight, coordinates[..., -1] - weight @ self.center if self.bias else None


def basis_of(features: Tensor, bias: bool = True) -> Basis:
    """Compute the basis of features (samples, width), in double precision.

    Args:
        features: Inputs of the head, one row per sample.
        bias: Whether the head has one.

    >>> basis = basis_of(torch.tensor([[0.0, 5.0], [2.0, 5.0]]))
    >>> basis.rows.abs().tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    values = features.detach().double()
    center = values.mean(0) if bias else values.new_zeros(values.shape[1])
    values = values - center
    directions, variance = _principal(values)
    rows = values @ directions * variance.rsqrt()
    if bias:
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
    return Basis(rows, directions, variance, center, bias)


def _principal(values: Tensor) -> tuple[Tensor, Tensor]:
    """Find principal directions and variances, without those below the rounding error."""
    samples = len(values)
    # The triangle of a QR decomposition has the same singular values and right vectors as the whole
    # table, and is much smaller. The covariance matrix would square the condition number.
    triangle = torch.linalg.qr(values, mode="r").R if samples > values.shape[1] else values
    _, size, transposed = torch.linalg.svd(triangle, full_matrices=False)
    largest = size.max() if len(size) else 0.0
    keep = size > largest * max(values.shape) * torch.finfo(values.dtype).eps
    return transposed[keep].T, size[keep].square() / samples


def least_squares(
    basis: Basis, target: Tensor, weights: Tensor, l2: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve weighted least squares for several sets of weights.

    The basis is orthonormal without weights, so the condition of the normal equations is at most
    that of the weights (largest over smallest), whatever the features. Coordinates that samples of
    weight zero leave undetermined get the smallest norm.

    Args:
        basis: Coordinates of the features.
        target: Values (n, outputs).
        weights: Sample weights (n, heads), which sum to one per head.
        l2: Penalty λ.

    Returns:
        Coordinates (heads, outputs, r), gradient norms, and whether each norm is only rounding.
    """
    rows, outputs = basis.rows, target.shape[1]
    gram = _products(rows, rows, weights)
    right = _products(rows, target, weights)
    gram.diagonal(dim1=1, dim2=2).add_(0.5 * outputs * l2 * basis.penalty)
    found = _solved(gram, right)
    norm = (gram @ found - right).abs().amax((1, 2)) * (2 / outputs)
    return found.mT, norm, norm <= ROUNDING * (1 + right.abs().amax((1, 2)))


def _products(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """Compute leftᵀ diag(w) right for every column w of the weights."""
    heads, size = weights.shape[1], left.shape[1] * right.shape[1]
    total = left.new_zeros(heads, size)
    if heads <= right.shape[1] + 1:
        return torch.stack([(left * column[:, None]).T @ right for column in weights.T])
    block = max(1, NUMBERS // size)
    for a, b, w in zip(left.split(block), right.split(block), weights.split(block), strict=True):
        total += w.T @ (a[:, :, None] * b[:, None]).flatten(1)
    return total.view(heads, left.shape[1], right.shape[1])


def _solved(gram: Tensor, right: Tensor) -> Tensor:
    """Solve by Cholesky after scaling to a unit diagonal; by pseudo-inverse where singular."""
    tiny = torch.finfo(gram.dtype).tiny
    scale = gram.diagonal(dim1=1, dim2=2).clamp_min(tiny).rsqrt()[:, :, None]
    scaled, right = scale * gram * scale.mT, scale * right
    factor, failed = torch.linalg.cholesky_ex(scaled)
    doubtful = (failed > 0) | ~(factor.diagonal(dim1=1, dim2=2).amin(1) > SINGULAR)
    solution = torch.empty_like(right)
    solution[~doubtful] = torch.cholesky_solve(right[~doubtful], factor[~doubtful])
    solution[doubtful] = torch.linalg.pinv(scaled[doubtful], hermitian=True) @ right[doubtful]
    return scale * solution
