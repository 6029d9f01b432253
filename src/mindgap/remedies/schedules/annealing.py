"""Annealing of the learning rate."""

import math

from mindgap.core import InputError, Remedy, TrainingState, option


class Annealing(Remedy):
    r"""Lowers the learning rate along a cosine until the last epoch.

    Formula: $\eta_e = a\, \eta \left(1 - \frac{d}{2}\left(1 - \cos\frac{\pi (e - 1)}{E}\right)
    \right), \qquad e = 1, \dots, E$

    Reading: Large steps early find a good region, small steps late settle in it. The depth d is the
    share of the learning rate that is gone at the end; zero turns it off. A peak a above one pays
    off most: the rate begins higher than training could bear throughout. A schedule of the recipe
    keeps its effect: both factors apply.

    Assumes: A number of epochs that is fixed beforehand.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Linear(1, 1)
    >>> sgd = torch.optim.SGD(model.parameters())
    >>> states = [TrainingState(model=model, optimizer=sgd, epoch=e, epochs=4) for e in range(1, 5)]
    >>> [round(Annealing().rate_factor(state), 3) for state in states]
    [1.0, 0.854, 0.5, 0.146]
    """

    method = ("E5",)
    cites = ("loshchilov2017sgdr",)
    strength = "depth"
    treats = frozenset({"under-fitting"})
    horizon = True

    depth: float = option(
        1.0, help="share of the learning rate that is gone at the end; 0 is off", low=0, high=1
    )
    peak: float = option(
        1.0, help="learning rate of the first epoch, as a multiple of the recipe's", above=0
    )

    def rate_factor(self, state: TrainingState) -> float:
        """Follow a half wave of the cosine."""
        if not state.epochs:
            raise InputError(
                "Annealing must know the number of epochs, got a training loop that does not tell "
                "it. Pass epochs= to RemedyOptimizer."
            )
        passed = (1 - math.cos(math.pi * (state.epoch - 1) / state.epochs)) / 2
        return self.peak * (1 - self.depth * passed)
