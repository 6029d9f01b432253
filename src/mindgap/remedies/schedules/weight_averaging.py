"""Averaging of the weights over the last epochs."""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Remedy, Stack, StackState, TrainingState, option
from mindgap.core.calls import call

_NORMALIZERS = nn.modules.batchnorm._BatchNorm
_CHUNK = 256  # samples per batch from which batch normalization takes its statistics


class WeightAveraging(Remedy):
    r"""Hands over the mean of the weights at the end of each of the last epochs.

    Formula: $\bar w = \frac{1}{k} \sum_{e=E-k+1}^{E} w_e, \qquad k = \lceil s E \rceil$

    Reading: The last weights move around a minimum, and their mean lies closer to its center.
    Training itself does not change, so it costs next to nothing. The statistics of batch
    normalization are computed from the training data for the mean. A share of zero turns it off.

    Assumes: The averaged weights lie around the same minimum, as they do late in training.

    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> fit(recipe, [WeightAveraging(share=0.25)]).epochs
    20
    """

    method = ("E5",)
    cites = ("izmailov2018averaging", "polyak1992acceleration")
    strength = "share"
    treats = frozenset({"over-fitting", "sharp minimum"})
    horizon = True

    share: float = option(
        0.5, help="share of the epochs, at the end, that are averaged; 0 is off", low=0, high=1
    )

    def _number(self, epoch: int, epochs: int) -> int:
        """The place of an epoch among those that are averaged, from 1; less if it is not."""
        if not epochs:
            raise InputError(
                "Weight averaging must know the number of epochs, got a training loop that does "
                "not tell it. Pass epochs= to RemedyOptimizer."
            )
        return epoch - epochs + max(1, math.ceil(self.share * epochs))

    @torch.no_grad()
    def after_epoch(self, state: TrainingState) -> bool:
        """Move the mean towards the weights."""
        number = self._number(state.epoch, state.epochs)
        if number >= 1:
            mean = state.memory.setdefault("mean", {})
            for name, weight in state.model.named_parameters():
                known = mean.setdefault(name, torch.zeros_like(weight))
                known.add_((weight - known) / number)
        return False

    @classmethod
    def vectorized_epoch(cls, members: Sequence[Self], stack: Stack, state: StackState) -> None:
        """Move the means of all members that are still trained."""
        numbers = torch.tensor([own._number(state.epoch, state.epochs) for own in members])
        moving = state.alive & (numbers >= 1)
        if not bool(moving.any()):
            return
        mean = state.memory.setdefault("mean", torch.zeros_like(stack.weights))
        for known, weight in zip(stack.cut(mean), stack.cut(stack.weights), strict=True):
            parts = numbers[moving].to(weight).view(-1, *[1] * (weight.ndim - 1))
            known[moving] += (weight[moving] - known[moving]) / parts

    @torch.no_grad()
    def finish(self, state: TrainingState) -> nn.Module:
        """Give the model the mean, and batch normalization the statistics that belong to it."""
        mean = state.memory.get("mean", {})
        if not mean or self._number(state.epoch, state.epochs) < 1:
            return state.model
        for name, weight in state.model.named_parameters():
            if name in mean:
                weight.copy_(mean[name])
        _renormalize(state)
        return state.model


def _renormalize(state: TrainingState) -> None:
    """Compute the statistics of batch normalization from all training data.

    Dropout and other noise stay off, so that the statistics are those of the model as it is used.
    """
    layers = [m for m in state.model.modules() if isinstance(m, _NORMALIZERS) and _tracks(m)]
    if not layers:
        return
    if state.subject is None:
        raise InputError(
            "Weight averaging must see the training data where the model has batch "
            "normalization, got a training loop that does not hand them over. Train with "
            "mindgap.fit, or pass train= to RemedyOptimizer."
        )
    train, momenta = state.subject(state.model).train, [layer.momentum for layer in layers]
    like = next(state.model.parameters())
    state.model.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over all batches
        layer.train()
    for index in _even(len(train)):
        call(state.model, train.take(index).inputs, like)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()


def _tracks(layer: nn.Module) -> bool:
    return bool(layer.track_running_stats)


def _even(samples: int) -> Sequence[Tensor]:
    """Places in chunks of nearly equal size, none of which is a single sample if it can be."""
    return torch.arange(samples).chunk(math.ceil(samples / _CHUNK))
