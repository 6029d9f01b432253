"""Image layers, one member at a time, with forward and backward passes written by hand."""

import torch
from torch import Tensor, nn

from mindgap.training.vectorized.layers import Stage, aten, is_stage, stage_of
from mindgap.training.vectorized.patches import (
    Averages,
    Image,
    Maxima,
    PairMaxima,
    pair,
    pairs_up,
    unfolds,
)
from mindgap.training.vectorized.problem import Unsupported


class Convolution(Image):
    """Any convolution, by torch's kernels, called only for the gradients that are needed."""

    def __init__(
        self, layer: nn.Conv2d, parts: list[Tensor], gradients: list[Tensor], first: bool
    ) -> None:
        self.layer, self.parts, self.gradients, self.first = layer, parts, gradients, first
        self._images = torch.empty(0)

    def forward(self, member: int, images: Tensor) -> Tensor:
        """Call torch's convolution."""
        self._images, layer = images.contiguous(), self.layer
        weights = [part[member] for part in self.parts]
        bias = weights[1] if len(weights) > 1 else None
        return torch.conv2d(
            self._images,
            weights[0],
            bias,
            pair(layer.stride),
            pair(layer.padding),
            layer.dilation,
            layer.groups,
        )

    def backward(self, member: int, gradient: Tensor) -> Tensor:
        """Call torch's gradients and copy them to their place."""
        layer, biased = self.layer, len(self.parts) > 1
        settings = [list(pair(value)) for value in (layer.stride, layer.padding, layer.dilation)]
        found = aten.convolution_backward(
            gradient.contiguous(), self._images, self.parts[0][member], [layer.out_channels] if biased else None,
            *settings, False, [0, 0], layer.groups, [not self.first, True, biased],
        )  # fmt: skip
        for place, value in zip(self.gradients, found[1:], strict=False):
            place[member].copy_(value)
        return gradient if self.first else found[0]


class _Elementwise(Image):
    """An activation or dropout."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._source, self._out = torch.empty(0), torch.empty(0)

    def forward(self, member: int, images: Tensor) -> Tensor:  # noqa: ARG002
        """Run the stage's own program."""
        self._source, self._out = images, torch.empty_like(images)
        for operation in self.stage.forward(self._source, self._out):
            operation()
        return self._out

    def backward(self, member: int, gradient: Tensor) -> Tensor:  # noqa: ARG002
        """Change the gradient in place."""
        for operation in self.stage.backward(gradient, self._source, self._out):
            operation()
        return gradient


class _Pool(Image):
    """A pool without weights."""

    def __init__(self, pool: PairMaxima | Maxima | Averages) -> None:
        self.pool = pool

    def forward(self, member: int, images: Tensor) -> Tensor:  # noqa: ARG002
        """Pool the images."""
        return self.pool.forward(images)

    def backward(self, member: int, gradient: Tensor) -> Tensor:  # noqa: ARG002
        """Send the gradient back to where it came from."""
        return self.pool.backward(gradient)


def segment_shapes(layer: nn.Conv2d, first: bool) -> list[tuple[int, ...]]:
    """Return the shapes of a convolution's parameters in the store."""
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise Unsupported("a convolution pads with other than a number of zeros")
    biased = layer.bias is not None
    if unfolds(layer, first):
        return [(layer.out_channels, layer.weight[0].numel() + biased)]
    return [tuple(layer.weight.shape), *([(layer.out_channels,)] if biased else [])]


def simple_layer(layer: nn.Module, random: torch.Generator) -> Image:
    """Make a layer without weights."""
    if type(layer) is nn.MaxPool2d and not layer.return_indices:
        return _Pool(PairMaxima(layer) if pairs_up(layer) else Maxima(layer))
    if type(layer) is nn.AvgPool2d:
        return _Pool(Averages(layer))
    if is_stage(layer):
        return _Elementwise(stage_of(layer, random))
    raise Unsupported(f"the layer {type(layer).__name__} has no derivative by hand")
