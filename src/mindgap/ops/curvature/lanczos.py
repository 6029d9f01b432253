"""The Lanczos method on many initial vectors at once, with full reorthogonalization."""

from collections.abc import Callable

import torch
from torch import Tensor

CLOSED = 1e-13  # a squared norm below this part of what it was before is rounding
Done = Callable[[Tensor, Tensor, Tensor], bool]


def lanczos(
    multiply: Callable[[Tensor], Tensor],
    start: Tensor,
    steps: int,
    *,
    metric: Callable[[Tensor], Tensor] | None = None,
    done: Done | None = None,
) -> tuple[Tensor, Tensor]:
    """Build the tridiagonal matrix of every column, and return its eigenvalues and vectors.

    Args:
        multiply: Takes the images M v of vectors v under the metric M, as columns, and returns
            the products A v of a matrix A that is self-adjoint in the inner product uᵀMv.
        start: The initial vectors, as columns.
        steps: Largest number of steps.
        metric: Computes M v; M is the identity if None.
        done: Told eigenvalues, eigenvectors and the length of the next vectors; true ends it.

    Returns:
        Eigenvalues of shape (columns, steps), ascending, and eigenvectors of shape (columns, steps,
        steps). A column whose space is closed early has rows and columns of zeros at the end.

    >>> values, vectors = lanczos(
    ...     lambda v: v * torch.tensor([[1.0], [3.0]]).double(), torch.ones(2, 1).double(), 2
    ... )
    >>> values.round(decimals=9).tolist()
    [[1.0, 3.0]]
    """
    image_of = metric or (lambda vector: vector)
    vector, image, _ = _normalized(start, image_of(start), 0.0)
    basis, images = [vector], [image]
    diagonal, off = list[Tensor](), list[Tensor]()
    values = vectors = torch.empty(0)
    for _ in range(steps):
        vector = multiply(images[-1])
        diagonal.append((vector * images[-1]).sum(0))
        inside = torch.zeros_like(diagonal[-1])
        # Rounding lets the basis lose its orthogonality, and false copies of an eigenvalue appear.
        for turn in range(2):  # once would leave rounding errors of the first projection
            parts = torch.einsum("snb,nb->sb", torch.stack(images), vector)
            vector = vector - torch.einsum("snb,sb->nb", torch.stack(basis), parts)
            inside = inside if turn else parts.square().sum(0)
        vector, image, size = _normalized(vector, image_of(vector), CLOSED * inside)
        if done is not None:
            values, vectors = _ritz(diagonal, off)
            if done(values, vectors, size):
                break
        basis.append(vector)
        images.append(image)
        off.append(size)
    return _ritz(diagonal, off[: len(diagonal) - 1])


def _normalized(
    vector: Tensor, image: Tensor, negligible: Tensor | float
) -> tuple[Tensor, Tensor, Tensor]:
    """Give vectors the length one in the inner product of the metric; closed spaces end in zero."""
    square = (vector * image).sum(0)
    size = torch.where(square > negligible, square.clamp_min(0), 0.0).sqrt()
    factor = torch.where(size > 0, 1 / size.clamp_min(1e-300), 0.0)
    return vector * factor, image * factor, size


def _ritz(diagonal: list[Tensor], off: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of the tridiagonal matrices."""
    whole = torch.diag_embed(torch.stack(diagonal, 1))
    if off:
        beside = torch.stack(off, 1)
        whole = whole + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    values, vectors = torch.linalg.eigh(whole)
    return values, vectors
