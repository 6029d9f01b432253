"""Coordinates in which a linear head is well conditioned: centred, uncorrelated features of variance one."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Basis:
    r"""The change of coordinates :math:`z = B^\top(x - \mu)`, with a last column of ones if there is a bias.

    A head is :math:`W = U B^\top`, so its logits are those of U on z, and its squared norm is a weighted sum of the
    squares of U. Directions in which no sample varies (dead units, copies) are left out: a head with any penalty has
    no weight along them.
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
        """Coordinates of a head (outputs, features)."""
        weight = weight.detach().double()
        own = weight @ self.directions * self.variance.sqrt()
        if not self.bias:
            return own
        shift = weight @ self.center + (0.0 if bias is None else bias.detach().double())
        return torch.cat([own, shift[:, None]], 1)

    def outward(self, coordinates: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weight (…, outputs, features) and bias (…, outputs) of heads given by their coordinates."""
        own = coordinates[..., :-1] if self.bias else coordinates
        weight = (own * self.variance.rsqrt()) @ self.directions.T
        return weight, coordinates[..., -1] - weight @ self.center if self.bias else None


def basis_of(features: Tensor, bias: bool = True) -> Basis:
    """The basis of features (samples, width), in double precision.

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
    """Directions and variances, but those that are rounding errors of the largest."""
    samples = len(values)
    triangle = torch.linalg.qr(values, mode="r").R if samples > values.shape[1] else values
    _, size, transposed = torch.linalg.svd(triangle, full_matrices=False)
    keep = size > (size.max() if len(size) else 0.0) * max(values.shape) * torch.finfo(values.dtype).eps
    return transposed[keep].T, size[keep].square() / samples
