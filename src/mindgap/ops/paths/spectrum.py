"""The largest eigenvalue of a difference of second moments in path space, from inner products."""

import math

import torch
from torch import Tensor

from mindgap.core import implements
from mindgap.ops.curvature.lanczos import lanczos

STEPS = 300  # of the Lanczos method, which takes about fifteen
RANK = 1e-12  # eigenvalues below this part of the largest are zero


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
    """Run the Lanczos method on all columns at once, in the inner product of the matrix."""
    source = torch.Generator().manual_seed(0)
    start = torch.randn(weights.shape, generator=source, dtype=torch.double)

    def done(values: Tensor, vectors: Tensor, size: Tensor) -> bool:
        errors = size * vectors[:, -1, -1].abs()
        return bool((errors <= tolerance * values.abs().amax(1).clamp_min(1e-300)).all())

    values, _ = lanczos(
        lambda images: weights * images,
        start,
        min(STEPS, len(matrix)),
        metric=lambda vectors: matrix @ vectors,
        done=done,
    )
    return values[:, -1]
