"""Picture layers of one member at a time, forward and backward by hand: convolutions, pools, activations."""

from __future__ import annotations

import abc
import math

import torch
from torch import Tensor, nn

from mindgap.training.vectorized.pooling import Averages, Maxima, PairMaxima, pairs_up
from mindgap.training.vectorized.stages import Stage, aten, is_stage, stage_of
from mindgap.training.vectorized.support import Unsupported

_FEW = 64  # up to this many numbers a patch, products with unfolded patches beat torch's convolution


class Picture(abc.ABC):
    """A layer that keeps what its own backward pass needs."""

    @abc.abstractmethod
    def forward(self, member: int, pictures: Tensor) -> Tensor:
        """The layer's result."""

    @abc.abstractmethod
    def backward(self, member: int, gradient: Tensor) -> Tensor:
        """The gradient for the layer's input; those of its weights go into the store."""


class Patches(Picture):
    """A first convolution as one product of stacked filters with unfolded patches; its input needs no gradient."""

    def __init__(self, layer: nn.Conv2d, filters: Tensor, gradients: Tensor) -> None:
        self.layer, self.filters, self.gradients = layer, filters, gradients
        self._kept: dict[tuple[int, ...], tuple[Tensor, Tensor, Tensor]] = {}
        self._columns = torch.empty(0)

    def forward(self, member: int, pictures: Tensor) -> Tensor:
        """Unfold and multiply."""
        padded, patches, columns = self._buffers(pictures)
        (up, left), (height, width) = _pair(self.layer.padding), pictures.shape[2:]
        padded[:, :, up : up + height, left : left + width] = pictures
        columns[: math.prod(patches.shape[:3])].view(patches.shape).copy_(patches)
        self._columns = columns.flatten(1)
        shape = (self.layer.out_channels, *patches.shape[3:])
        return torch.mm(self.filters[member], self._columns).view(shape).transpose(0, 1)

    def backward(self, member: int, gradient: Tensor) -> Tensor:
        """The filters' gradient; nothing lies before."""
        rows = gradient.transpose(0, 1).reshape(self.layer.out_channels, -1)
        torch.mm(rows, self._columns.t(), out=self.gradients[member])
        return gradient

    def _buffers(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shape = tuple(pictures.shape)
        if shape not in self._kept:
            self._kept[shape] = self._allocate(pictures)
        return self._kept[shape]

    def _allocate(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count, channels, height, width = pictures.shape
        (up, left), (kernel_y, kernel_x) = _pair(self.layer.padding), _pair(self.layer.kernel_size)
        (step_y, step_x), (gap_y, gap_x) = _pair(self.layer.stride), _pair(self.layer.dilation)
        padded = pictures.new_zeros(count, channels, height + 2 * up, width + 2 * left)
        rows = (padded.shape[2] - gap_y * (kernel_y - 1) - 1) // step_y + 1
        places = (padded.shape[3] - gap_x * (kernel_x - 1) - 1) // step_x + 1
        sample, channel, row, _ = padded.stride()
        patches = padded.as_strided(
            (channels, kernel_y, kernel_x, count, rows, places),
            (channel, gap_y * row, gap_x, sample, step_y * row, step_x),
        )
        return padded, patches, pictures.new_ones(self.filters.shape[2], count, rows, places)


class Convolution(Picture):
    """Any other convolution: torch's kernels, called for the gradients that are needed only."""

    def __init__(self, layer: nn.Conv2d, parts: list[Tensor], gradients: list[Tensor], first: bool) -> None:
        self.layer, self.parts, self.gradients, self.first = layer, parts, gradients, first
        self._pictures = torch.empty(0)

    def forward(self, member: int, pictures: Tensor) -> Tensor:
        """torch's convolution."""
        self._pictures, layer = pictures.contiguous(), self.layer
        weights = [part[member] for part in self.parts]
        bias = weights[1] if len(weights) > 1 else None
        return torch.conv2d(
            self._pictures, weights[0], bias, _pair(layer.stride), _pair(layer.padding), layer.dilation, layer.groups
        )

    def backward(self, member: int, gradient: Tensor) -> Tensor:
        """torch's gradients, copied to their place."""
        layer, biased = self.layer, len(self.parts) > 1
        settings = [list(_pair(value)) for value in (layer.stride, layer.padding, layer.dilation)]
        found = aten.convolution_backward(
            gradient.contiguous(), self._pictures, self.parts[0][member], [layer.out_channels] if biased else None,
            *settings, False, [0, 0], layer.groups, [not self.first, True, biased],
        )  # fmt: skip
        for place, value in zip(self.gradients, found[1:], strict=False):
            place[member].copy_(value)
        return gradient if self.first else found[0]


class Elementwise(Picture):
    """An activation or dropout."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._source, self._out = torch.empty(0), torch.empty(0)

    def forward(self, member: int, pictures: Tensor) -> Tensor:  # noqa: ARG002
        """The stage's own program."""
        self._source, self._out = pictures, torch.empty_like(pictures)
        for operation in self.stage.forward(self._source, self._out):
            operation()
        return self._out

    def backward(self, member: int, gradient: Tensor) -> Tensor:  # noqa: ARG002
        """In place."""
        for operation in self.stage.backward(gradient, self._source, self._out):
            operation()
        return gradient


class Pool(Picture):
    """A pool without weights."""

    def __init__(self, pool: PairMaxima | Maxima | Averages) -> None:
        self.pool = pool

    def forward(self, member: int, pictures: Tensor) -> Tensor:  # noqa: ARG002
        """Pool."""
        return self.pool.forward(pictures)

    def backward(self, member: int, gradient: Tensor) -> Tensor:  # noqa: ARG002
        """Send the gradient back to where it came from."""
        return self.pool.backward(gradient)


def segment_shapes(layer: nn.Conv2d, first: bool) -> list[tuple[int, ...]]:
    """How a convolution's parameters lie in the store."""
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise Unsupported("a convolution pads with other than a number of zeros")
    biased = layer.bias is not None
    if unfolds(layer, first):
        return [(layer.out_channels, layer.weight[0].numel() + biased)]
    return [tuple(layer.weight.shape), *([(layer.out_channels,)] if biased else [])]


def unfolds(layer: nn.Conv2d, first: bool) -> bool:
    """Whether a convolution is computed from unfolded patches."""
    return first and layer.groups == 1 and layer.weight[0].numel() <= _FEW


def simple_layer(layer: nn.Module, random: torch.Generator) -> Picture:
    """A layer without weights."""
    if type(layer) is nn.MaxPool2d and not layer.return_indices:
        return Pool(PairMaxima(layer) if pairs_up(layer) else Maxima(layer))
    if type(layer) is nn.AvgPool2d:
        return Pool(Averages(layer))
    if is_stage(layer):
        return Elementwise(stage_of(layer, random))
    raise Unsupported(f"the layer {type(layer).__name__} has no derivative by hand")


def _pair(value: object) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])  # type: ignore[index]
