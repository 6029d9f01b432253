"""The largest eigenvalue of a difference of second moments in path space, from inner products."""

import math

import torch
from torch import Tensor

from mindgap.core import implements

STEPS = 300  # of the Lanczos method, which takes about fifteen
RANK = 1e-12  # eigenvalues below this part of the largest are zero
CLOSED = 1e-13  # a squared norm below this part of what it was before is rounding


@implements("K4", cites=("kawaguchi2017generalization", "lanczos1950iteration"))
def largest_eigenvalues(
    matrix: Tensor, weights: Tensor, log_paths: float, *, tolerance: float = 1e-10
) -> Tensor:
    r"""Compute λ_max of weighted second moments of features that are known by their products only.

    Formula: $\beta_1 = \lambda_{max}\left( \sum_i d_i z_i z_i^\top \right), \quad \text{whose
    non-zero eigenvalues are those of } D G, \quad G_{ij} = \langle z_i, z_j \rangle$

    Reading: With d = 1/n' on held-out and -1/n on training samples it is the β₁ of Proposition 4. D
    G is self-adjoint in the inner product uᵀGv, where the Lanczos method needs one product with G
    per step.

    Assumes: G is positive semi-definite. It is computed densely where there are no more paths than
    samples, because then zero need not be an eigenvalue.

    Args:
        matrix: G, the inner products of all samples.
        weights: d, one column per problem; all columns are solved together.
        log_paths: Logarithm of the number of paths.
        tolerance: Error relative to the largest eigenvalue at which the Lanczos method stops.

    >>> features = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double()
    >>> found = largest_eigenvalues(
    ...     features @ features.T, torch.tensor([[0.5], [-0.5]]).double(), math.log(2)
    ... )
    >>> round(float(found), 12)
    0.5
    """
    if not bool((matrix.diagonal() > 0).any()):
        return torch.zeros(weights.shape[1], dtype=torch.double)  # every path is dead
    if log_paths > math.log(len(matrix)):
        found = _lanczos(matrix, weights, tolerance)
        return found.clamp_min(0.0)
    return _dense(matrix, weights, log_paths)


def _dense(matrix: Tensor, weights: Tensor, log_paths: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    kept = values > RANK * values[-1]
    root = vectors[:, kept] * values[kept].sqrt()
    moments = torch.einsum("ni,nb,nj->bij", root, weights, root)
    largest: Tensor = torch.linalg.eigvalsh(moments)[:, -1]
    # With fewer dimensions than paths the moments have an eigenvalue of zero that root lacks.
    full = math.isclose(math.log(int(kept.sum())), log_paths, abs_tol=1e-9)
    return largest if full else largest.clamp_min(0.0)


def _lanczos(matrix: Tensor, weights: Tensor, tolerance: float) -> Tensor:
    """Run the Lanczos method on all columns at once, with full reorthogonalization."""
    count, columns = weights.shape
    vector = torch.randn(
        count, columns, generator=torch.Generator().manual_seed(0), dtype=torch.double
    )
    vector, image, _ = _normalized(vector, matrix @ vector, 0.0)
    basis, images = [vector], [image]
    diagonal, off = list[Tensor](), list[Tensor]()
    for _ in range(min(STEPS, count)):
        vector = weights * images[-1]
        diagonal.append((vector * images[-1]).sum(0))
        inside = torch.zeros(columns, dtype=torch.double)
        for turn in range(2):  # once would leave rounding errors of the first projection
            parts = torch.einsum("snb,nb->sb", torch.stack(images), vector)
            vector = vector - torch.einsum("snb,sb->nb", torch.stack(basis), parts)
            inside = inside if turn else parts.square().sum(0)
        vector, image, size = _normalized(vector, matrix @ vector, CLOSED * inside)
        values, ends = _ritz(diagonal, off)
        if bool((size * ends <= tolerance * values.abs().amax(1).clamp_min(1e-300)).all()):
            break
        basis.append(vector)
        images.append(image)
        off.append(size)
    return values[:, -1]


def _normalized(
    vector: Tensor, image: Tensor, negligible: Tensor | float
) -> tuple[Tensor, Tensor, Tensor]:
    """Give vectors the length one in the inner product of the matrix; closed spaces end in zero."""
    square = (vector * image).sum(0)
    size = torch.where(square > negligible, square.clamp_min(0), 0.0).sqrt()
    factor = torch.where(size > 0, 1 / size.clamp_min(1e-300), 0.0)
    return vector * factor, image * factor, size


def _ritz(diagonal: list[Tensor], off: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of the tridiagonal matrices, and the last entry of the top vectors."""
    whole = torch.diag_embed(torch.stack(diagonal, 1))
    if off:
        beside = torch.stack(off, 1)
        whole = whole + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    values, vectors = torch.linalg.eigh(whole)
    return values, vectors[:, -1, -1].abs()
