"""Dense layers and convolutions as linear maps at the shape of their real input."""

import dataclasses
import functools
import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mindgap.core import Undefined
from mindgap.ops.norms.singular import MARGIN, WHOLE, Singular, convolution_bound, of_map, of_matrix

Kind = Literal["dense", "convolution", "transposed convolution"]
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_CONVOLVE: tuple[Any, ...] = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)
_TRANSPOSE: tuple[Any, ...] = (
    nn.functional.conv_transpose1d,
    nn.functional.conv_transpose2d,
    nn.functional.conv_transpose3d,
)


@dataclasses.dataclass(frozen=True)
class WeightedLayer:
    """A layer that is linear in its input, apart from its bias, in double precision.

    Args:
        name: The name of the module in the model.
        module: Tells the geometry.
        weight: The weight to use, as torch shapes it; it may differ from the module's own.
        bias: The bias, or None.
        shape: The shape of one input: features, or channels and places.
        left: The shape of one output.

    >>> layer = weighted_layer("", nn.Conv1d(1, 1, 3, padding=1), (1, 8), (1, 8))
    >>> layer.norm().value <= layer.upper()
    True
    """

    name: str
    module: nn.Module
    weight: Tensor
    bias: Tensor | None
    shape: tuple[int, ...]
    left: tuple[int, ...]

    @property
    def kind(self) -> Kind:
        """What kind of layer it is."""
        if isinstance(self.module, nn.Linear):
            return "dense"
        return "convolution" if isinstance(self.module, CONVOLUTIONS) else "transposed convolution"

    def __call__(self, inputs: Tensor) -> Tensor:
        """Apply the layer without its bias to inputs of shape (batch, *shape)."""
        return self._applied(inputs, self.weight)

    def norm(self, convention: str = "operator") -> Singular:
        """Compute the spectral norm, of the whole map or of the kernel as a matrix."""
        if self.kind == "dense" or convention == "kernel":
            return of_matrix(self.matrix)
        return of_map(self, self.shape)

    def circular_norm(self, sizes: tuple[int, ...]) -> Singular:
        """Compute the norm of the circular convolution of stride 1 with this kernel.

        It is what the literature takes for the norm, at the size of the image for every layer.
        Stride, padding, dilation and groups do not count.

        Args:
            sizes: The places of an image along each dimension.
        """
        if self.kind == "dense":
            return of_matrix(self.weight)
        if len(sizes) != self.weight.ndim - 2:
            raise Undefined(f"needs images for its convolutions, got inputs of {len(sizes)} axes")
        places = list(range(2, self.weight.ndim))
        spectrum = torch.fft.fftn(self.weight, s=sizes, dim=places).flatten(2).permute(2, 0, 1)
        return Singular(value=float(torch.linalg.matrix_norm(spectrum, 2).max()), residual=0.0)

    def upper(self) -> float:
        """Bound the norm of the whole map from above."""
        if self.kind == "dense":
            return dense_bound(self.weight)
        module, mode = _geometry(self.module), getattr(self.module, "padding_mode", "zeros")
        # A transposed convolution is the adjoint of the convolution from its output to its input.
        sizes = (self.left if self.kind == "transposed convolution" else self.shape)[1:]
        bound = functools.partial(
            convolution_bound,
            self.weight,
            stride=module.stride,
            dilation=module.dilation,
            groups=module.groups,
        )
        if mode == "zeros":
            return bound(sizes)
        strides = zip(self.left[1:], module.stride, sizes, strict=True)
        if mode == "circular" and all(out * step == size for out, step, size in strides):
            return bound(sizes, circular=True)
        padded = nn.functional.pad(torch.zeros(1, *self.shape), _padding(self.module), mode=mode)
        return _repeats(sizes, _padding(self.module), mode) * bound(padded.shape[2:])

    def row_squares(self, convention: str = "operator") -> Tensor:
        """Compute the squared norm of the incoming weights of every output unit.

        The map's rows are what a kernel of squares makes of ones. Where reflected or replicated
        places meet twice in one window, their squares are added, not their sum squared.
        """
        if self.kind == "dense" or convention == "kernel":
            return self.matrix.square().sum(1)
        ones = torch.ones(1, *self.shape, dtype=torch.double)
        return self._applied(ones, self.weight.square()).flatten()

    @property
    def matrix(self) -> Tensor:
        """The weight with one row per output channel."""
        if self.kind != "transposed convolution":
            return self.weight.flatten(1)
        groups = int(_geometry(self.module).groups)
        parts = self.weight.view(groups, -1, *self.weight.shape[1:]).transpose(1, 2)
        return parts.reshape(groups * self.weight.shape[1], -1)

    @property
    def spread_bias(self) -> Tensor:
        """The bias of every output unit; zeros if there is none."""
        if self.bias is None:
            return torch.zeros(self.left, dtype=torch.double)
        return self.bias.view(-1, *[1] * (len(self.left) - 1)).expand(self.left)

    def _applied(self, inputs: Tensor, weight: Tensor) -> Tensor:
        if self.kind == "dense":
            return nn.functional.linear(inputs, weight)
        module, place = _geometry(self.module), len(self.shape) - 2
        common = {"stride": module.stride, "dilation": module.dilation, "groups": module.groups}
        if self.kind == "transposed convolution":
            extra = self._output_padding(module)
            convolved: Tensor = _TRANSPOSE[place](
                inputs, weight, padding=module.padding, output_padding=extra, **common
            )
            return convolved
        if module.padding_mode != "zeros":
            inputs = nn.functional.pad(inputs, _padding(self.module), mode=module.padding_mode)
        padding = module.padding if module.padding_mode == "zeros" else 0
        found: Tensor = _CONVOLVE[place](inputs, weight, padding=padding, **common)
        return found

    def _output_padding(self, module: Any) -> tuple[int, ...]:
        """What the call, which may name the size of its output, added at the end."""
        each = zip(
            self.shape[1:],
            self.left[1:],
            module.stride,
            module.padding,
            module.dilation,
            module.kernel_size,
            strict=True,
        )
        return tuple(
            out - ((size - 1) * step - 2 * pad + gap * (kernel - 1) + 1)
            for size, out, step, pad, gap, kernel in each
        )


def weighted_layer(
    name: str, module: nn.Module, shape: tuple[int, ...], left: tuple[int, ...]
) -> WeightedLayer:
    """Read a dense layer or a convolution.

    Args:
        name: Its name.
        module: An ``nn.Linear``, a convolution or a transposed convolution.
        shape: The shape of one input; of a dense layer the last dimension counts.
        left: The shape of one output.

    >>> weighted_layer("fc", nn.Linear(3, 2), (5, 3), (5, 2)).shape
    (3,)
    """
    parts = module.weight, module.bias
    weight, bias = (None if v is None else v.detach().double().cpu() for v in parts)  # type: ignore[operator]
    assert weight is not None
    if isinstance(module, nn.Linear):
        shape, left = shape[-1:], left[-1:]
    return WeightedLayer(name, module, weight, bias, shape, left)


def _geometry(module: nn.Module) -> Any:
    return module


def _padding(module: nn.Module) -> list[int]:
    """The places added at both ends of each dimension, the last dimension first."""
    found: list[int] = list(_geometry(module)._reversed_padding_repeated_twice)
    return found


def _repeats(sizes: tuple[int, ...], padding: list[int], mode: str) -> float:
    """The norm of a padding that repeats inputs: the root of how often one of them appears."""
    most = 1
    for place, size in enumerate(reversed(sizes)):
        ends = padding[2 * place : 2 * place + 2]
        numbers = torch.arange(size, dtype=torch.double).view(1, 1, -1)
        shown = nn.functional.pad(numbers, ends, mode=mode).flatten().long()
        most *= int(torch.bincount(shown).max())
    return math.sqrt(most)


def dense_bound(weight: Tensor) -> float:
    """Bound the norm of a matrix from above, by decomposition or, if it is large, by powers.

    The Schatten norm of order 32 is at most (rank)^(1/32) times the norm, and only multiplies.

    >>> round(dense_bound(torch.eye(3)), 6)
    1.0
    """
    weight = weight.detach().double().cpu()
    if min(weight.shape) <= 2 * WHOLE:
        return MARGIN * of_matrix(weight).value
    power = weight @ weight.T if len(weight) < weight.shape[1] else weight.T @ weight
    logs = 0.0
    for halving in range(4):
        size = float(power.norm()) or 1.0
        logs += math.log(size) / 2 ** (halving + 1)
        power = (power / size) @ (power / size)
    return MARGIN * math.exp(logs + math.log(float(power.norm()) or 1.0) / 32)
