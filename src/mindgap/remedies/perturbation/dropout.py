"""Dropout."""

import dataclasses
from typing import Any

import torch.nn.functional as F
from torch import nn

from mindgap.core import InputError, Recipe, Remedy, Split, TrainingState, option


class Dropout(Remedy):
    r"""Sets random hidden units to zero while training.

    Formula: $h \leftarrow \frac{h \odot b}{1-p}, \qquad b_j \sim \mathrm{Bernoulli}(1-p)$

    Reading: A high rate trains an average of thinned networks, which memorize less and fit more
    slowly. Dropout acts on the input of each linear layer, except a first layer of the network. The
    trained model has the same layers as the plain one.

    Assumes: The model has a linear layer behind another layer with weights.

    >>> chain = Dropout(rate=0.3).attach(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)))
    >>> [len(layer._forward_pre_hooks) for layer in chain]
    [0, 1]
    """

    method = ("E5",)
    cites = ("srivastava2014dropout",)
    strength = "rate"
    treats = frozenset({"over-fitting", "memorized noise"})
    cost = 1.2

    rate: float = option(0.3, help="probability with which a unit is set to zero", low=0, below=1)

    def prepare(self, recipe: Recipe, data: Split) -> Recipe:  # noqa: ARG002
        """Make the model factory attach the masks."""
        factory = recipe.model
        return recipe.replace(model=lambda: self.attach(factory()))

    def attach(self, model: nn.Module) -> nn.Module:
        """Put a mask in front of every linear layer but the first layer with weights."""
        layers = [
            module
            for module in model.modules()
            if next(module.parameters(recurse=False), None) is not None
        ]
        linear = [module for module in layers[1:] if isinstance(module, nn.Linear)]
        if not linear:
            raise InputError(
                "Dropout must have a linear layer behind another layer, got none in "
                f"{type(model).__name__}. Put nn.Dropout into the model by hand."
            )
        for module in linear:
            module.register_forward_pre_hook(_Mask(self.rate))
        return model

    def finish(self, state: TrainingState) -> nn.Module:
        """Remove the masks."""
        for module in state.model.modules():
            for key, hook in list(module._forward_pre_hooks.items()):
                if isinstance(hook, _Mask):
                    del module._forward_pre_hooks[key]
        return state.model


@dataclasses.dataclass(frozen=True)
class _Mask:
    """Dropout in front of a module, as a hook: the model keeps its layers and their names."""

    rate: float

    @property
    def layer(self) -> nn.Module:
        """The layer that does the same, for engines that take a model apart."""
        return nn.Dropout(self.rate)

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (F.dropout(inputs[0], self.rate, module.training), *inputs[1:])
