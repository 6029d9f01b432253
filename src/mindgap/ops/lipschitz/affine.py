"""An affine map between flat vectors, written out as a matrix in double precision."""

from collections.abc import Callable

import torch
from torch import Tensor

_ROWS = 256  # vectors that pass the layers at once
_MANY = 2**28  # multiplications from which sums over channels are prepared once
_HELD = 2**26  # entries that may be prepared


class Affine:
    """A map x ↦ Wx + b of rows.

    Args:
        function: From rows to rows; affine.
        width: The length of a row.

    >>> double = Affine(lambda rows: 2 * rows + 1, 2)
    >>> double.matrix.tolist(), double.bias.tolist()
    ([[2.0, 0.0], [0.0, 2.0]], [1.0, 1.0])
    """

    def __init__(self, function: Callable[[Tensor], Tensor], width: int) -> None:
        self.bias = function(torch.zeros(1, width, dtype=torch.double))[0].detach()
        self.matrix = _written(function, self.bias, width).detach()
        self._prepared: dict[tuple[str, int], Tensor] = {}
        self._scaled: tuple[Tensor, Tensor, Tensor] | None = None
        self._times: tuple[Tensor, Tensor] | None = None
        self._merged: tuple[Tensor, Tensor] | None = None

    def values(self, rows: Tensor) -> Tensor:
        """Apply the whole map to rows."""
        return rows @ self.matrix.T + self.bias

    def outer(self, weights: Tensor, places: Tensor) -> Tensor:
        """Compute W diag(w) Wᵀ, where w has one entry per group of inputs.

        Args:
            weights: One entry per group.
            places: The group of each input.
        """
        if self._is_long(self.matrix) and not self._is_held(self.matrix, len(weights)):
            # Inputs that average pooling merges have equal columns; adding up their weights is exact.
            columns, index = self.merged()
            sums = torch.zeros(columns.shape[1], dtype=torch.double)
            return (columns * sums.index_add(0, index, weights[places])) @ columns.T
        return self._summed("inputs", self.matrix, weights, places)

    def inner(self, weights: Tensor, places: Tensor) -> Tensor:
        """Compute Wᵀ diag(w) W, where w has one entry per group of results."""
        return self._summed("results", self.matrix.T, weights, places)

    def scaled(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return diag(rows) W diag(columns); the last answer is kept."""
        if rows.requires_grad or columns.requires_grad:
            return rows[:, None] * self.matrix * columns
        held = self._scaled
        if held is None or not (torch.equal(held[0], rows) and torch.equal(held[1], columns)):
            self._scaled = held = rows, columns, rows[:, None] * self.matrix * columns
        return held[2]

    def times(self, left: Tensor) -> Tensor:
        """Return the product with a matrix; the last constant one is kept, as it comes every step."""
        if left.requires_grad:
            return self.matrix @ left
        if self._times is None or self._times[0] is not left:
            self._times = left, self.matrix @ left
        return self._times[1]

    def merged(self) -> tuple[Tensor, Tensor]:
        """Return the matrix with equal columns only once, and where each column went."""
        if self._merged is None:
            key = torch.randn(len(self.matrix), generator=torch.Generator().manual_seed(0))
            names = (key.double() @ self.matrix).float()
            index = names.unique(return_inverse=True)[1]
            first = torch.zeros(int(index.max()) + 1, dtype=torch.long)
            first[index] = torch.arange(len(index))
            columns = self.matrix[:, first]
            if len(first) == len(index) or not torch.equal(columns[:, index], self.matrix):
                columns, index = self.matrix, torch.arange(len(index))
            self._merged = columns, index
        return self._merged

    def _is_long(self, matrix: Tensor) -> bool:
        return len(matrix) * matrix.numel() >= _MANY

    def _is_held(self, matrix: Tensor, count: int) -> bool:
        return count * len(matrix) ** 2 <= _HELD

    def _summed(self, side: str, matrix: Tensor, weights: Tensor, places: Tensor) -> Tensor:
        count = len(weights)
        if not (self._is_long(matrix) and self._is_held(matrix, count)):
            return (matrix * weights[places]) @ matrix.T
        if (side, count) not in self._prepared:
            parts = [matrix[:, places == k] for k in range(count)]
            self._prepared[side, count] = torch.stack([part @ part.T for part in parts])
        found: Tensor = torch.tensordot(weights, self._prepared[side, count], 1)
        return found


def _written(function: Callable[[Tensor], Tensor], bias: Tensor, width: int) -> Tensor:
    """Send unit vectors through the map, or back through it if its results are fewer."""
    eye = torch.eye(min(len(bias), width), dtype=torch.double)
    if len(bias) < width:
        back = torch.func.vjp(function, torch.zeros(1, width, dtype=torch.double))[1]
        each = torch.vmap(lambda row: back(row[None])[0][0])
        return torch.cat([each(part) for part in eye.split(_ROWS)])
    columns = [function(part) - bias for part in eye.split(_ROWS)]
    return torch.cat(columns).T.contiguous()
