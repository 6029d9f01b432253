"""Random flips of images."""

import torch
from torch import Tensor

from mindgap.core import Inputs, Remedy, TrainingState, mapped, option, values


class RandomFlips(Remedy):
    r"""Mirrors training images left to right at random.

    Formula: $x \leftarrow x_{:,\,:,\,W:1:-1} \quad\text{with probability } p$

    Reading: The network sees twice as many images, half of them mirrored. Right for photographs of
    things and animals, wrong where left and right differ, as for digits and letters. Zero turns it
    off.

    Assumes: Images whose mirror image has the same target.

    >>> from torch import nn
    >>> state = TrainingState(model=nn.Identity(), optimizer=None, step=1)
    >>> (mirrored,) = RandomFlips(rate=1.0).inputs(state, (torch.arange(3.0).view(1, 1, 1, 3),))
    >>> mirrored.flatten().tolist()
    [2.0, 1.0, 0.0]
    """

    method = ("E5",)
    cites = ("krizhevsky2012imagenet",)
    strength = "rate"
    treats = frozenset({"over-fitting"})
    needs = frozenset({"images"})
    cost = 1.2

    rate: float = option(
        0.5, help="probability with which an image is mirrored; 0 is off", low=0, high=1
    )

    def inputs(self, state: TrainingState, inputs: Inputs) -> Inputs:
        """Draw which images of this step are mirrored."""
        random = torch.Generator().manual_seed(state.random(self.name))
        chosen = torch.rand(len(values(inputs)[0]), generator=random) < self.rate

        def mirrored(value: Tensor) -> Tensor:
            if value.ndim != 4:
                return value
            return torch.where(chosen.to(value.device).view(-1, 1, 1, 1), value.flip(3), value)

        return mapped(inputs, mirrored)
