"""Mixup."""

import random

import torch
from torch import Tensor

from mindgap.core import Inputs, Losses, Remedy, TrainingState, mapped, option, values


class Mixup(Remedy):
    r"""Trains on mixtures of two samples, with their losses mixed in the same proportion.

    Formula: $\tilde x = \lambda x_i + (1 - \lambda) x_j, \qquad \tilde\ell = \lambda\,
    \ell(f(\tilde x), y_i) + (1 - \lambda)\, \ell(f(\tilde x), y_j), \qquad \lambda \sim
    \mathrm{Beta}(\alpha, \alpha)$

    Reading: Between two samples the network learns to answer between their targets, so it is less
    sure away from the data and memorizes less. Every batch has one λ and one random pairing. A
    small α mixes hardly anything; at α = 1 every proportion is as likely. Zero turns it off.

    Assumes: Inputs that are real numbers.

    >>> from torch import nn
    >>> state = TrainingState(model=nn.Identity(), optimizer=None, step=2)
    >>> (mixed,) = Mixup(alpha=1.0).inputs(state, (torch.eye(2),))
    >>> [round(total, 6) for total in mixed.sum(1).tolist()]
    [1.0, 1.0]
    """

    method = ("E5",)
    cites = ("zhang2018mixup",)
    strength = "alpha"
    treats = frozenset({"over-fitting", "memorized noise", "over-confidence"})
    needs = frozenset({"real inputs"})
    cost = 1.2

    alpha: float = option(0.2, help="both parameters α of the Beta distribution; 0 is off", low=0)

    def _drawn(self, state: TrainingState, samples: int) -> tuple[float, Tensor]:
        """Draw λ and the partners of this step; the same for the inputs and for the loss."""
        seed = state.random(self.name)
        partners = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
        return random.Random(seed).betavariate(self.alpha, self.alpha), partners  # noqa: S311

    def inputs(self, state: TrainingState, inputs: Inputs) -> Inputs:
        """Mix every sample with its partner."""
        share, partners = self._drawn(state, len(values(inputs)[0]))
        return mapped(
            inputs, lambda value: share * value + (1 - share) * value[partners.to(value.device)]
        )

    def losses(self, state: TrainingState, loss: Losses, output: Tensor, target: Tensor) -> Tensor:
        """Mix the losses for both targets."""
        share, partners = self._drawn(state, len(target))
        other = target[partners.to(target.device)]
        return share * loss(output, target) + (1 - share) * loss(output, other)
