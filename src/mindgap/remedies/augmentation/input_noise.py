"""Noise on the inputs."""

import torch
from torch import Tensor

from mindgap.core import Inputs, Remedy, TrainingState, mapped, option


class InputNoise(Remedy):
    r"""Adds Gaussian noise to the inputs of every training batch.

    Formula: $x_j \leftarrow x_j + s\, \sigma_j\, z_j, \qquad z_j \sim \mathcal N(0, 1)$

    Reading: The network learns to give nearly the same answer around every sample, as under a
    penalty on its slope. σ is the standard deviation in the batch: of each feature where inputs are
    rows, of each channel where they are images. So the scale s has no units. Zero turns it off.

    Assumes: Inputs that are real numbers, whose small changes do not change the target.

    >>> from torch import nn
    >>> state = TrainingState(model=nn.Identity(), optimizer=None, step=1)
    >>> rows = torch.tensor([[0.0, 5.0], [2.0, 5.0]])
    >>> (noisy,) = InputNoise(scale=0.1).inputs(state, (rows,))
    >>> bool((noisy[:, 0] != rows[:, 0]).all()), noisy[:, 1].tolist()
    (True, [5.0, 5.0])
    """

    method = ("E5",)
    cites = ("bishop1995training",)
    strength = "scale"
    treats = frozenset({"noise sensitivity", "over-fitting"})
    needs = frozenset({"real inputs"})
    cost = 1.2

    scale: float = option(
        0.1, help="size s of the noise, in standard deviations of the inputs; 0 is off", low=0
    )

    def inputs(self, state: TrainingState, inputs: Inputs) -> Inputs:
        """Draw the noise of this step."""
        random = torch.Generator().manual_seed(state.random(self.name))

        def noisy(value: Tensor) -> Tensor:
            others = [place for place in range(value.ndim) if place != 1]
            spread = value.std(others, correction=0, keepdim=True)
            noise = torch.randn(value.shape, generator=random, dtype=value.dtype)
            return value + self.scale * spread * noise.to(value.device)

        return mapped(inputs, noisy)
