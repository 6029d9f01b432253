"""Pools forward and backward; maxima of 2 × 2 by pairs, which torch's kernel does several times slower."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mindgap.training.vectorized.stages import aten


class PairMaxima:
    """Maximum of 2 × 2 windows: of left and right, then of top and bottom; the first of equals takes the gradient."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        self.other = Maxima(layer)
        self._pictures, self._columns = torch.empty(0), torch.empty(0)
        self._odd = False

    def forward(self, pictures: Tensor) -> Tensor:
        """Two maxima of halves."""
        self._odd = bool(pictures.shape[-1] % 2 or pictures.shape[-2] % 2)
        if self._odd:
            return self.other.forward(pictures)
        self._pictures = pictures
        self._columns = torch.maximum(pictures[..., ::2], pictures[..., 1::2])
        return torch.maximum(self._columns[..., ::2, :], self._columns[..., 1::2, :])

    def backward(self, gradient: Tensor) -> Tensor:
        """Each half's share."""
        if self._odd:
            return self.other.backward(gradient)
        columns, pictures = torch.empty_like(self._columns), torch.empty_like(self._pictures)
        share(
            gradient,
            self._columns[..., ::2, :],
            self._columns[..., 1::2, :],
            columns[..., ::2, :],
            columns[..., 1::2, :],
        )
        share(columns, self._pictures[..., ::2], self._pictures[..., 1::2], pictures[..., ::2], pictures[..., 1::2])
        return pictures


def share(gradient: Tensor, first: Tensor, second: Tensor, to_first: Tensor, to_second: Tensor) -> None:
    """Part the gradient of a maximum between its two arguments."""
    torch.mul(gradient, first >= second, out=to_first)
    torch.sub(gradient, to_first, out=to_second)


class Maxima:
    """Any maximum pool."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        kernel, stride = _pair(layer.kernel_size), _pair(layer.stride)
        self.settings = [kernel, stride, _pair(layer.padding), _pair(layer.dilation), layer.ceil_mode]
        self._kept: tuple[Tensor, Tensor] = torch.empty(0), torch.empty(0)

    def forward(self, pictures: Tensor) -> Tensor:
        """torch's pool, with its places."""
        result, places = aten.max_pool2d_with_indices(pictures, *self.settings)
        self._kept = pictures, places
        return result  # type: ignore[no-any-return]

    def backward(self, gradient: Tensor) -> Tensor:
        """To the places."""
        pictures, places = self._kept
        return aten.max_pool2d_with_indices_backward(gradient, pictures, *self.settings, places)  # type: ignore[no-any-return]


class Averages:
    """Any average pool."""

    def __init__(self, layer: nn.AvgPool2d) -> None:
        sizes = [_pair(value) for value in (layer.kernel_size, layer.stride, layer.padding)]
        self.settings = [*sizes, layer.ceil_mode, layer.count_include_pad, layer.divisor_override]
        self._pictures = torch.empty(0)

    def forward(self, pictures: Tensor) -> Tensor:
        """torch's pool."""
        self._pictures = pictures
        return aten.avg_pool2d(pictures, *self.settings)  # type: ignore[no-any-return]

    def backward(self, gradient: Tensor) -> Tensor:
        """Equal shares."""
        return aten.avg_pool2d_backward(gradient, self._pictures, *self.settings)  # type: ignore[no-any-return]


def pairs_up(layer: nn.MaxPool2d) -> bool:
    """Whether the windows are 2 × 2 and do not overlap."""
    sizes = _pair(layer.kernel_size), _pair(layer.stride), _pair(layer.padding), _pair(layer.dilation)
    return sizes == ([2, 2], [2, 2], [0, 0], [1, 1])


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)
