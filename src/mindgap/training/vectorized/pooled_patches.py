"""A first convolution together with the 2 × 2 maximum pool behind it, as one product.

For a 5 × 5 kernel the four positions of a pool's window see 25 pixels each of the same 6 × 6. So
the pixels are unfolded once per window, not once per position. The filters, shifted to each
position, multiply them at once. This takes a third of the memory, and the maxima are those of whole
blocks instead of every second number.
"""

import dataclasses
import itertools

import torch
from torch import Tensor, nn

from mindgap.training.vectorized.patches import Image, pair, share

_POSITIONS = 4


@dataclasses.dataclass(frozen=True)
class Buffers:
    """Tensors for one shape of images.

    ``phases`` holds the even and odd rows and columns of ``padded`` apart; ``windows`` is a view of
    them, laid out as ``pixels`` (slots, places). ``values`` and ``slopes`` are (channels,
    positions, samples, rows, columns).
    """

    padded: Tensor
    phases: Tensor
    windows: Tensor
    pixels: Tensor
    values: Tensor
    slopes: Tensor
    halves: Tensor


class PooledPatches(Image):
    """A convolution of the model's inputs with stride one, then the maximum of 2 × 2 windows."""

    def __init__(self, layer: nn.Conv2d, filters: Tensor, gradients: Tensor) -> None:
        self.layer, self.filters, self.gradients = layer, filters, gradients
        self.rows, self.columns = (size // 2 + 1 for size in pair(layer.kernel_size))
        self._shifts = torch.tensor(list(self._shifted()))
        self._kept: dict[tuple[int, ...], Buffers] = {}
        self._at: Buffers | None = None
        self._pairs: tuple[Tensor, Tensor] = torch.empty(0), torch.empty(0)

    def _shifted(self) -> list[int]:
        """For every position and slot, the place of the filter's number, or of the zeros behind."""
        channels, (height, width) = self.layer.in_channels, pair(self.layer.kernel_size)
        empty, bias = self.filters.shape[2], self.filters.shape[2] - (self.layer.bias is not None)
        found = []
        for down, right in itertools.product((0, 1), repeat=2):
            slots = itertools.product(
                (0, 1), (0, 1), range(channels), range(self.rows), range(self.columns)
            )
            for odd_y, odd_x, channel, y, x in slots:
                row, column = 2 * y + odd_y - down, 2 * x + odd_x - right
                inside = 0 <= row < height and 0 <= column < width
                found.append((channel * height + row) * width + column if inside else empty)
            found.append(bias)  # the column of zeros if there is no bias
        return found

    def forward(self, member: int, images: Tensor) -> Tensor:
        """Unfold, multiply, take the maxima."""
        shape = tuple(images.shape)
        if shape not in self._kept:
            self._kept[shape] = self._allocate(images)
        at = self._at = self._kept[shape]
        self._lay_out(images, at)
        filters = torch.nn.functional.pad(self.filters[member], (0, 1)).index_select(
            1, self._shifts
        )
        torch.mm(
            filters.view(-1, len(at.pixels)), at.pixels, out=at.values.view(-1, at.pixels.shape[1])
        )
        first, second, third, fourth = at.values.unbind(1)
        self._pairs = torch.maximum(first, second), torch.maximum(third, fourth)
        return torch.maximum(*self._pairs).transpose(0, 1)

    def _lay_out(self, images: Tensor, at: Buffers) -> None:
        (up, left), (height, width) = pair(self.layer.padding), at.padded.shape[2:]
        kept = images[:, :, : height - up, : width - left]
        at.padded[:, :, up : up + kept.shape[2], left : left + kept.shape[3]] = kept
        at.phases.copy_(
            at.padded.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).permute(3, 5, 0, 1, 2, 4)
        )
        at.pixels[:-1].view(at.windows.shape).copy_(at.windows)

    def backward(self, member: int, gradient: Tensor) -> Tensor:
        """Compute the filters' gradient, summed over positions; there is no layer before."""
        at = self._at
        assert at is not None
        share(gradient.transpose(0, 1), *self._pairs, *at.halves)
        values, slopes = at.values.unbind(1), at.slopes.unbind(1)
        share(at.halves[0], values[0], values[1], slopes[0], slopes[1])
        share(at.halves[1], values[2], values[3], slopes[2], slopes[3])
        found = torch.mm(at.slopes.view(-1, at.pixels.shape[1]), at.pixels.t())
        total = found.new_zeros(self.layer.out_channels, self.filters.shape[2] + 1)
        total.index_add_(1, self._shifts, found.view(self.layer.out_channels, -1))
        self.gradients[member].copy_(total[:, :-1])
        return gradient

    def _allocate(self, images: Tensor) -> Buffers:
        count, channels, height, width = images.shape
        (up, left), (kernel_y, kernel_x) = pair(self.layer.padding), pair(self.layer.kernel_size)
        rows, columns = (
            (height + 2 * up - kernel_y + 1) // 2,
            (width + 2 * left - kernel_x + 1) // 2,
        )
        tall, wide = rows + self.rows - 1, columns + self.columns - 1
        phases = images.new_empty(2, 2, count, channels, tall, wide)
        odd_y, odd_x, sample, channel, _, _ = phases.stride()
        windows = phases.as_strided(
            (2, 2, channels, self.rows, self.columns, count, rows, columns),
            (odd_y, odd_x, channel, wide, 1, sample, wide, 1),
        )
        slots, places = windows.shape[:5].numel(), windows.shape[5:].numel()
        values = images.new_empty(self.layer.out_channels, _POSITIONS, count, rows, columns)
        return Buffers(
            padded=images.new_zeros(count, channels, 2 * tall, 2 * wide),
            phases=phases,
            windows=windows,
            pixels=images.new_ones(slots + 1, places),
            values=values,
            slopes=torch.empty_like(values),
            halves=images.new_empty(2, self.layer.out_channels, count, rows, columns),
        )


def pools_with(layer: nn.Conv2d) -> bool:
    """Tell whether an unfolded convolution can be merged with the pool behind it."""
    return pair(layer.stride) == (1, 1) and pair(layer.dilation) == (1, 1)
