"""A random model that gives every sample of a batch its own draw of the weights, if its layers allow it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from mindgap.core.split import Inputs
from mindgap.core.subject import call
from mindgap.ops.posterior import RandomModel
from mindgap.ops.posterior_layers import StandIn, UnsuitedError, stand_in

AT_ONCE = 2_000_000  # numbers drawn together: small enough for a processor's cache
MOST = 512  # samples in one call
TRIED = 64  # samples on which the stand-ins are compared with the model


class Batched:
    """The model with stand-ins; calling it draws the weights anew for every sample of the inputs."""

    def __init__(self, model: RandomModel) -> None:
        self.network, self.layers = _swapped(model)
        self.like = model.centre

    def __call__(self, inputs: Inputs, source: torch.Generator | None) -> Tensor:
        """Outputs for some inputs; without a source of noise those of the mean weights."""
        samples = len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0])
        for layer in self.layers:
            layer.source, layer.samples, layer.calls = source, samples, 0
        outputs = call(self.network, inputs, self.like)
        if any(layer.calls != 1 for layer in self.layers):
            raise UnsuitedError("a layer is not called exactly once")
        return outputs

    @property
    def chunk(self) -> int:
        """How many samples to take at once."""
        return max(1, min(MOST, AT_ONCE // max(1, sum(layer.drawn for layer in self.layers))))


def batched(model: RandomModel, inputs: Inputs) -> Batched | None:
    """The model with stand-ins, tried on some inputs; none if a layer has none or is used in another way.

    Tried are small sizes of the batch, so that a dimension of another meaning is not taken for the samples, and whether
    the stand-ins without noise give what the model gives, on all these inputs.
    """
    try:
        found = Batched(model)
        for size in (2, 3, TRIED):
            some = _first(inputs, size)
            wanted = model.mean_answer(some)
            with torch.no_grad():
                given = found(some, None)
            if given.shape != wanted.shape or not torch.allclose(given, wanted, rtol=1e-3, atol=1e-4):
                return None
    except (UnsuitedError, RuntimeError, AttributeError, TypeError, ValueError, IndexError):
        return None
    return found


def _swapped(model: RandomModel) -> tuple[nn.Module, list[StandIn]]:
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        means, scales = model.named(model.means()), model.named(model.scales())
    if len(list(network.named_parameters(remove_duplicate=False))) != len(list(network.parameters())):
        raise UnsuitedError("two layers share a weight")
    layers = list[StandIn]()
    for home in sorted({name.rpartition(".")[0] for name in means}):
        layer, start = network.get_submodule(home), f"{home}." if home else ""
        own = {name for name in means if name.rpartition(".")[0] == home}
        inner = [{name.removeprefix(start): given[name] for name in own} for given in (means, scales)]
        layers.append(stand_in(layer, inner[0], inner[1], model))
        if not home:
            return layers[0], layers
        above, _, name = home.rpartition(".")
        setattr(network.get_submodule(above), name, layers[-1])
    return network, layers


def _first(inputs: Inputs, size: int) -> Inputs:
    if isinstance(inputs, dict):
        return {name: value[:size] for name, value in inputs.items()}
    return tuple(value[:size] for value in inputs)
