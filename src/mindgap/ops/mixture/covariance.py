"""Covariances of Gaussian components, full or diagonal, with a smallest eigenvalue."""

import math
from collections.abc import Iterator
from typing import Literal, Protocol

import torch
from torch import Tensor

from mindgap.core import InputError

Covariance = Literal["full", "diagonal"]
BLOCK = 2**18  # entries of a block of differences: what a CPU's cache holds


class Shape(Protocol):
    r"""Covariances :math:`(restarts, components, \ldots)` of one kind.

    ``raised`` applies the floor f. The M step wants the covariance that maximizes
    :math:`-\log|\Sigma| - \mathrm{tr}(\Sigma^{-1} S)` for the scatter S. Among all :math:`\Sigma
    \succeq f I` that is S with its eigenvalues raised to f. By von Neumann's trace inequality the
    best Σ has the eigenvectors of S in the same order. Each eigenvalue then minimizes
    :math:`\log\lambda + s/\lambda` on :math:`[f, \infty)` alone, which falls up to :math:`\lambda =
    s` and rises after. So the M step remains an exact maximizer, of a model whose components have a
    smallest spread, and the likelihood never falls. Adding f to the covariance would not guarantee
    that.
    """

    def scatter(self, rows: Tensor, means: Tensor, share: Tensor) -> Tensor: ...
    def raised(self, covariance: Tensor, floor: float) -> Tensor: ...
    def log_normal(self, rows: Tensor, means: Tensor, covariance: Tensor) -> Tensor: ...
    def matrix(self, covariance: Tensor) -> Tensor: ...
    def of_matrix(self, covariance: Tensor) -> Tensor: ...
    def parameters(self, dimension: int) -> int: ...


class Full:
    """Any covariance, ``(..., dimension, dimension)``."""

    def scatter(self, rows: Tensor, means: Tensor, share: Tensor) -> Tensor:
        """Compute the covariance of the rows about the means; shares sum to one per component."""
        total = torch.zeros(*means.shape, means.shape[-1], dtype=torch.float64)
        for part, away in _away(rows, means):
            total += (away * share[..., None, part]) @ away.mT
        return total

    def raised(self, covariance: Tensor, floor: float) -> Tensor:
        """Raise all eigenvalues to at least ``floor``."""
        if floor == 0:
            return covariance
        values, vectors = torch.linalg.eigh(covariance)
        lifted = (vectors * values.clamp_min(floor).unsqueeze(-2)) @ vectors.mT
        return torch.where((values < floor).any(-1)[..., None, None], lifted, covariance)

    def log_normal(self, rows: Tensor, means: Tensor, covariance: Tensor) -> Tensor:
        """Compute each component's log density at each row, ``(..., components, points)``."""
        factor, failed = torch.linalg.cholesky_ex(covariance)
        _singular(bool(failed.any()))
        unit = torch.eye(rows.shape[1], dtype=torch.float64).expand_as(factor)
        inverse = torch.linalg.solve_triangular(factor, unit, upper=False)
        result = torch.empty(*means.shape[:-1], len(rows), dtype=torch.float64)
        for part, away in _away(rows, means):
            result[..., part] = (inverse @ away).square_().sum(-2)
        return _normal(result, factor.diagonal(dim1=-2, dim2=-1).log().sum(-1), rows.shape[1])

    def matrix(self, covariance: Tensor) -> Tensor:
        """Convert to matrices."""
        return covariance

    def of_matrix(self, covariance: Tensor) -> Tensor:
        """Convert from matrices."""
        return covariance

    def parameters(self, dimension: int) -> int:
        """Count the free parameters of a covariance."""
        return dimension * (dimension + 1) // 2


class Diagonal:
    """Features independent of each other inside a component: variances, ``(..., dimension)``."""

    def scatter(self, rows: Tensor, means: Tensor, share: Tensor) -> Tensor:
        """Compute the variances of the rows about the means; shares sum to one per component."""
        total = torch.zeros_like(means)
        for part, away in _away(rows, means):
            total += (away.square_() @ share[..., part, None]).squeeze(-1)
        return total

    def raised(self, covariance: Tensor, floor: float) -> Tensor:
        """Raise all variances to at least ``floor``."""
        return covariance.clamp_min(floor)

    def log_normal(self, rows: Tensor, means: Tensor, covariance: Tensor) -> Tensor:
        """Compute each component's log density at each row, ``(..., components, points)``."""
        _singular(bool((covariance <= 0).any()))
        result = torch.empty(*means.shape[:-1], len(rows), dtype=torch.float64)
        for part, away in _away(rows, means):
            result[..., part] = away.div_(covariance.sqrt()[..., None]).square_().sum(-2)
        return _normal(result, 0.5 * covariance.log().sum(-1), rows.shape[1])

    def matrix(self, covariance: Tensor) -> Tensor:
        """Convert to matrices."""
        return torch.diag_embed(covariance)

    def of_matrix(self, covariance: Tensor) -> Tensor:
        """Take the diagonal of matrices."""
        return covariance.diagonal(dim1=-2, dim2=-1).clone()

    def parameters(self, dimension: int) -> int:
        """Count the free parameters of a covariance."""
        return dimension


SHAPES: dict[str, Shape] = {"full": Full(), "diagonal": Diagonal()}


def _away(rows: Tensor, means: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield differences (..., components, dimension, rows) from all means, by blocks of rows."""
    step, columns = max(1, BLOCK // means.numel()), rows.mT.contiguous()
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        yield part, columns[:, part] - means[..., None]


def _normal(square: Tensor, half_log_determinant: Tensor, dimension: int) -> Tensor:
    return square.mul_(-0.5).sub_(
        half_log_determinant[..., None] + 0.5 * dimension * math.log(2 * math.pi)
    )


def _singular(failed: bool) -> None:
    if failed:
        raise InputError(
            "Every component must keep some spread in every direction, got a singular covariance. "
            "Leave floor at None, or ask for fewer components."
        )
