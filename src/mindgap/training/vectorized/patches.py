"""Fast image layers: a first convolution by unfolded patches, and pools written by hand.

Products of filters with unfolded patches are several times faster than torch's gradient of the
convolution, and so are maxima of 2 × 2 windows by pairs.
"""

import abc
import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.training.vectorized.layers import aten

_FEW = 64  # numbers per patch up to which unfolded patches beat torch's convolution
_CACHED = 330_000  # numbers to unfold at a time, so that they stay in the cache


class Image(abc.ABC):
    """A layer that keeps what its own backward pass needs."""

    @abc.abstractmethod
    def forward(self, member: int, images: Tensor) -> Tensor:
        """Compute the layer's result."""

    @abc.abstractmethod
    def backward(self, member: int, gradient: Tensor) -> Tensor:
        """Return the gradient for the layer's input; write those of its weights to the store."""


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """Some images: their patches as a view of the padded images, and where their results go."""

    patches: Tensor
    columns: Tensor
    places: slice

    def unfold(self) -> Tensor:
        """Copy the patches into columns; the row of ones behind them multiplies the bias."""
        rows = self.patches.shape[0] * self.patches.shape[1] * self.patches.shape[2]
        self.columns[:rows].view(self.patches.shape).copy_(self.patches)
        return self.columns


class Patches(Image):
    """A convolution of the model's inputs, as one product of filters and patches per chunk.

    The inputs need no gradient. The backward pass unfolds the patches a second time, which is
    cheaper than to keep them for all chunks.
    """

    def __init__(self, layer: nn.Conv2d, filters: Tensor, gradients: Tensor) -> None:
        self.layer, self.filters, self.gradients = layer, filters, gradients
        self._kept: dict[tuple[int, ...], tuple[Tensor, list[_Chunk], Tensor]] = {}
        self._chunks: list[_Chunk] = []

    def forward(self, member: int, images: Tensor) -> Tensor:
        """Unfold and multiply."""
        shape = tuple(images.shape)
        if shape not in self._kept:
            self._kept[shape] = self._allocate(images)
        padded, self._chunks, result = self._kept[shape]
        (up, left), (height, width) = pair(self.layer.padding), images.shape[2:]
        padded[:, :, up : up + height, left : left + width] = images
        rows = result.flatten(1)
        for chunk in self._chunks:
            torch.mm(self.filters[member], chunk.unfold(), out=rows[:, chunk.places])
        return result.transpose(0, 1)

    def backward(self, member: int, gradient: Tensor) -> Tensor:
        """Compute the filters' gradient; there is no layer before."""
        rows = gradient.transpose(0, 1).reshape(self.layer.out_channels, -1)
        total = self.gradients[member].zero_()
        for chunk in self._chunks:
            columns = chunk.unfold() if len(self._chunks) > 1 else chunk.columns
            total.addmm_(rows[:, chunk.places], columns.t())
        return gradient

    def _allocate(self, images: Tensor) -> tuple[Tensor, list[_Chunk], Tensor]:
        """The padded images, the chunks, and the results as (channels, samples, rows, columns)."""
        (up, left), count = pair(self.layer.padding), len(images)
        height, width = images.shape[2] + 2 * up, images.shape[3] + 2 * left
        padded = images.new_zeros(count, images.shape[1], height, width)
        patches = self._unfolded(padded)
        size = patches.shape[4] * patches.shape[5]
        step = max(1, _CACHED // (self.filters.shape[2] * size))
        starts = range(0, count, step)
        columns = {
            k: images.new_ones(self.filters.shape[2], k * size) for k in {step, count - starts[-1]}
        }
        chunks = [
            _Chunk(
                part, columns[part.shape[3]], slice(start * size, (start + part.shape[3]) * size)
            )
            for start, part in zip(starts, patches.split(step, dim=3), strict=True)
        ]
        return (
            padded,
            chunks,
            images.new_empty(self.layer.out_channels, count, *patches.shape[4:]),
        )

    def _unfolded(self, padded: Tensor) -> Tensor:
        """A view of shape (channels, kernel rows, kernel columns, samples, rows, columns)."""
        count, channels, height, width = padded.shape
        (kernel_y, kernel_x), (step_y, step_x) = (
            pair(self.layer.kernel_size),
            pair(self.layer.stride),
        )
        gap_y, gap_x = pair(self.layer.dilation)
        rows = (height - gap_y * (kernel_y - 1) - 1) // step_y + 1
        places = (width - gap_x * (kernel_x - 1) - 1) // step_x + 1
        sample, channel, row, _ = padded.stride()
        return padded.as_strided(
            (channels, kernel_y, kernel_x, count, rows, places),
            (channel, gap_y * row, gap_x, sample, step_y * row, step_x),
        )


def unfolds(layer: nn.Conv2d, first: bool) -> bool:
    """Tell whether a convolution is computed from unfolded patches."""
    return first and layer.groups == 1 and layer.weight[0].numel() <= _FEW


def pair(value: object) -> tuple[int, int]:
    """Read a setting of a layer for both directions."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])  # type: ignore[index]


class PairMaxima:
    """Maximum of 2 × 2 windows: of left and right, then of top and bottom.

    Of equal numbers the first takes the gradient, as in torch.
    """

    def __init__(self, layer: nn.MaxPool2d) -> None:
        self.other = Maxima(layer)
        self._images, self._columns = torch.empty(0), torch.empty(0)
        self._odd = False

    def forward(self, images: Tensor) -> Tensor:
        """Take two maxima of halves."""
        self._odd = bool(images.shape[-1] % 2 or images.shape[-2] % 2)
        if self._odd:
            return self.other.forward(images)
        self._images = images
        self._columns = torch.maximum(images[..., ::2], images[..., 1::2])
        return torch.maximum(self._columns[..., ::2, :], self._columns[..., 1::2, :])

    def backward(self, gradient: Tensor) -> Tensor:
        """Give each half its share."""
        if self._odd:
            return self.other.backward(gradient)
        columns, images = torch.empty_like(self._columns), torch.empty_like(self._images)
        share(
            gradient,
            self._columns[..., ::2, :],
            self._columns[..., 1::2, :],
            columns[..., ::2, :],
            columns[..., 1::2, :],
        )
        share(
            columns,
            self._images[..., ::2],
            self._images[..., 1::2],
            images[..., ::2],
            images[..., 1::2],
        )
        return images


def share(
    gradient: Tensor, first: Tensor, second: Tensor, to_first: Tensor, to_second: Tensor
) -> None:
    """Split the gradient of a maximum between its two arguments."""
    torch.mul(gradient, first >= second, out=to_first)
    torch.sub(gradient, to_first, out=to_second)


class Maxima:
    """Any maximum pool."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        kernel, stride = _pair(layer.kernel_size), _pair(layer.stride)
        self.settings = [
            kernel,
            stride,
            _pair(layer.padding),
            _pair(layer.dilation),
            layer.ceil_mode,
        ]
        self._kept: tuple[Tensor, Tensor] = torch.empty(0), torch.empty(0)

    def forward(self, images: Tensor) -> Tensor:
        """Call torch's pool, with its places."""
        result, places = aten.max_pool2d_with_indices(images, *self.settings)
        self._kept = images, places
        return result  # type: ignore[no-any-return]

    def backward(self, gradient: Tensor) -> Tensor:
        """Send the gradient to the places of the maxima."""
        images, places = self._kept
        return aten.max_pool2d_with_indices_backward(gradient, images, *self.settings, places)  # type: ignore[no-any-return]


class Averages:
    """Any average pool."""

    def __init__(self, layer: nn.AvgPool2d) -> None:
        sizes = [_pair(value) for value in (layer.kernel_size, layer.stride, layer.padding)]
        self.settings = [*sizes, layer.ceil_mode, layer.count_include_pad, layer.divisor_override]
        self._images = torch.empty(0)

    def forward(self, images: Tensor) -> Tensor:
        """Call torch's pool."""
        self._images = images
        return aten.avg_pool2d(images, *self.settings)  # type: ignore[no-any-return]

    def backward(self, gradient: Tensor) -> Tensor:
        """Give every pixel of a window an equal share."""
        return aten.avg_pool2d_backward(gradient, self._images, *self.settings)  # type: ignore[no-any-return]


def pairs_up(layer: nn.MaxPool2d) -> bool:
    """Tell whether the windows are 2 × 2 and do not overlap."""
    sizes = (
        _pair(layer.kernel_size),
        _pair(layer.stride),
        _pair(layer.padding),
        _pair(layer.dilation),
    )
    return sizes == ([2, 2], [2, 2], [0, 0], [1, 1])


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)
