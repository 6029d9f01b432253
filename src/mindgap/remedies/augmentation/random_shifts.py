"""Random shifts of images."""

import torch
from torch import Tensor

from mindgap.core import Inputs, Remedy, TrainingState, mapped, option, values


class RandomShifts(Remedy):
    r"""Moves training images by a few pixels in a random direction.

    Formula: $x_{:,i,j} \leftarrow x_{:,\,[i+u],\,[j+v]}, \qquad u, v \sim
    U\{-p, \dots, p\}, \qquad [\cdot] \text{ cut to the image}$

    Reading: The network learns that the place of a thing does not matter. Pixels that come in from
    outside repeat the edge, so it does not matter how images are scaled. Zero turns it off.

    Assumes: Images of things that need not be in one place.

    >>> from torch import nn
    >>> state = TrainingState(model=nn.Identity(), optimizer=None, step=4)
    >>> (moved,) = RandomShifts(pixels=1).inputs(state, (torch.arange(4.0).view(1, 1, 1, 4),))
    >>> moved.flatten().tolist()
    [1.0, 2.0, 3.0, 3.0]
    """

    method = ("E5",)
    cites = ("simard2003best",)
    strength = "pixels"
    treats = frozenset({"over-fitting"})
    needs = frozenset({"images"})
    cost = 1.3

    pixels: int = option(1, help="largest shift p in each direction; 0 is off", low=0)

    def inputs(self, state: TrainingState, inputs: Inputs) -> Inputs:
        """Draw the shift of every image in this step."""
        random = torch.Generator().manual_seed(state.random(self.name))
        size = (len(values(inputs)[0]), 2)
        shifts = torch.randint(-self.pixels, self.pixels + 1, size, generator=random)
        return mapped(inputs, lambda value: _moved(value, shifts.to(value.device)))


def _moved(images: Tensor, shifts: Tensor) -> Tensor:
    if images.ndim != 4:
        return images
    count, channels, height, width = images.shape
    place = shifts.new_tensor(range(max(count, channels, height, width)))
    rows = (place[:height] + shifts[:, :1]).clamp(0, height - 1)
    columns = (place[:width] + shifts[:, 1:]).clamp(0, width - 1)
    own, channel = place[:count].view(-1, 1, 1, 1), place[:channels].view(1, -1, 1, 1)
    return images[own, channel, rows[:, None, :, None], columns[:, None, None, :]]
