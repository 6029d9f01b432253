"""The convolutional engine: images member by member, one optimizer step for all members.

A stacked convolution is a grouped one, which torch computes slowly on a CPU, and the images of all
members leave the cache. Four other things are faster: to pass one member at a time without
autograd, to unfold the first layer, to pool before the activation, and to step all members at once.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from mindgap.training.batches import epoch_seed
from mindgap.training.vectorized.batches import aligned_targets, featured
from mindgap.training.vectorized.dense import Pass, views_of
from mindgap.training.vectorized.engine import Engine
from mindgap.training.vectorized.images import Convolution, segment_shapes, simple_layer
from mindgap.training.vectorized.layers import (
    Block,
    Named,
    Program,
    blocks_of,
    is_flatten,
    layers_of,
)
from mindgap.training.vectorized.losses import Ends, loss_program
from mindgap.training.vectorized.parameters import Store
from mindgap.training.vectorized.patches import Image, Patches, pairs_up, unfolds
from mindgap.training.vectorized.pooled_patches import PooledPatches, pools_with
from mindgap.training.vectorized.problem import Problem, Unsupported, all_trainable

_RISING = (nn.ReLU, nn.Tanh, nn.Sigmoid)


class Convolutional(Engine):
    """Chains of convolutions, pools and activations, then a flatten and a dense chain."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        all_trainable(problem)
        self.data = problem.single_input()
        self.front, self.blocks = halves(layers_of(problem.models[0]))
        if self.data.ndim != 4:
            raise Unsupported("the inputs are not images")
        self.random = torch.Generator()
        shapes = [shape for layers in self._convolutions() for shape in segment_shapes(*layers[1:])]
        store = Store(
            problem.members, [*shapes, *((b.width, b.columns) for b in self.blocks)], problem.like
        )
        views, self.layers = self._layers(store)
        tail = slice(len(shapes), None)
        self.adopt(store, {**views, **views_of(self.blocks, store.segments[tail])})
        self._tail = store.segments[tail], store.gradients[tail]
        self.targets = aligned_targets(problem, self.blocks[-1].width)
        self.weights = None if problem.weights is None else problem.weights.to(self.data)
        self._places = self.orders.places(1)
        self._ends = {stop - start: Tail(self, stop - start) for start, stop in self.bounds}

    def _convolutions(self) -> list[tuple[str, nn.Conv2d, bool]]:
        found = [(name, layer) for name, layer in self.front if type(layer) is nn.Conv2d]
        return [(name, layer, layer is self.front[0][1]) for name, layer in found]

    def _layers(self, store: Store) -> tuple[dict[str, Tensor], list[Image]]:
        views: dict[str, Tensor] = {}
        layers: list[Image] = []
        at = 0
        for name, layer in self.front:
            if type(layer) is not nn.Conv2d:
                layers.append(simple_layer(layer, self.random))
                continue
            first = layer is self.front[0][1]
            parts = slice(at, at := at + len(segment_shapes(layer, first)))
            layers.append(_convolution(layer, store.segments[parts], store.gradients[parts], first))
            views |= _views(name, layer, store.segments[parts], first)
        return views, _joined(self.front, layers)

    def tail_parts(self, member: int) -> tuple[list[Tensor], list[Tensor]]:
        """Weights and gradients of one member's dense chain."""
        weights, gradients = self._tail
        return [w[member : member + 1] for w in weights], [
            g[member : member + 1] for g in gradients
        ]

    def begin(self, epoch: int) -> None:
        """Draw the epoch's order."""
        self.random.manual_seed(epoch_seed(self.problem.seeds[0], epoch))
        self._places = self.orders.places(epoch)

    def gradient(self, step: int) -> None:
        """Pass each member forward and backward while its images are in the cache."""
        start, stop = self.bounds[step]
        tail = self._ends[stop - start]
        for member in range(self.problem.members):
            places = self._places[member, start:stop]
            images = self._images(member, places)
            tail.fetch(member, places)
            for layer in self.layers:
                images = layer.forward(member, images)
            self.losses[step, member] = tail.run(member, images)
            pull = tail.input_gradient.view(images.shape)
            for layer in reversed(self.layers):
                pull = layer.backward(member, pull)

    def _images(self, member: int, places: Tensor) -> Tensor:
        if self.problem.hooks.changes_inputs:
            return self.problem.hooked_input(member, places)
        return self.data if self.orders.full else self.data.index_select(0, places)


class Tail:
    """The dense end of the chain with the loss, one member at a time, for one batch size."""

    def __init__(self, engine: Convolutional, batch: int) -> None:
        problem, blocks = engine.problem, engine.blocks
        self.engine = engine
        inputs = blocks[0].linear.in_features
        new = engine.data.new_ones
        self._rows = new(1, batch, blocks[0].columns)
        self._features, self.input_gradient = self._rows[0, :, :inputs], new(1, batch, inputs)
        self._label = engine.targets.new_zeros(1, batch, *engine.targets.shape[1:])
        self._weights = None if engine.weights is None else new(1, 1, batch)
        self._value = new(1)
        self._programs = [
            self._program(problem, member, batch) for member in range(problem.members)
        ]

    def _program(self, problem: Problem, member: int, batch: int) -> Program:
        run = Pass(self.engine.blocks, *self.engine.tail_parts(member), batch, self.engine.random)
        target = self._label if problem.named_loss == "" else featured(self._label)
        ends = Ends(run.output, target, self._weights, run.output_gradient, self._value)
        loss = loss_program(problem, ends, self._label, (member,))
        return [
            *run.forward(self._rows.mT),
            *loss,
            *run.backward(self._rows.mT, self.input_gradient),
        ]

    def fetch(self, member: int, places: Tensor) -> None:
        """Fetch targets and weights of the batch."""
        self._label[0] = self.engine.targets.index_select(0, places)
        weights = self.engine.weights
        if weights is not None and self._weights is not None:
            self._weights[0, 0] = (weights if weights.ndim == 1 else weights[member]).index_select(
                0, places
            )

    def run(self, member: int, features: Tensor) -> Tensor:
        """Compute the loss; leave the gradient for the features in ``input_gradient``."""
        self._features.copy_(features.flatten(1))
        for operation in self._programs[member]:
            operation()
        return self._value[0]


def halves(layers: list[Named]) -> tuple[list[Named], list[Block]]:
    """Split a chain at its flatten into image layers, pools first, and a dense chain."""
    cuts = [k for k, (_, layer) in enumerate(layers) if is_flatten(layer)]
    if not cuts or not any(type(layer) is nn.Conv2d for _, layer in layers[: cuts[0]]):
        raise Unsupported("the model is not a chain of convolutions and linear layers")
    return _pools_first(layers[: cuts[0]]), blocks_of(layers[cuts[0] :])


def _pools_first(layers: list[Named]) -> list[Named]:
    """Swap a rising activation with the maximum pool behind it: equal values for less work."""
    ordered = list(layers)
    for k, (here, behind) in enumerate(pairwise(layers)):
        if type(here[1]) in _RISING and type(behind[1]) is nn.MaxPool2d:
            ordered[k], ordered[k + 1] = behind, here
    return ordered


def _convolution(
    layer: nn.Conv2d, parts: list[Tensor], gradients: list[Tensor], first: bool
) -> Image:
    if unfolds(layer, first):
        return Patches(layer, parts[0], gradients[0])
    return Convolution(layer, parts, gradients, first)


def _joined(front: list[Named], layers: list[Image]) -> list[Image]:
    """Merge the first convolution with the pool behind it, where that can be done."""
    first, pool = layers[0], front[1][1] if len(front) > 1 else None
    if not isinstance(first, Patches) or not pools_with(first.layer):
        return layers
    if type(pool) is not nn.MaxPool2d or not pairs_up(pool) or pool.ceil_mode:
        return layers
    return [PooledPatches(first.layer, first.filters, first.gradients), *layers[2:]]


def _views(name: str, layer: nn.Conv2d, parts: list[Tensor], first: bool) -> dict[str, Tensor]:
    if not unfolds(layer, first):
        return {
            f"{name}{kind}": part for kind, part in zip(("weight", "bias"), parts, strict=False)
        }
    size = layer.weight[0].numel()
    views = {f"{name}weight": parts[0][:, :, :size].unflatten(2, layer.weight.shape[1:])}
    return views if layer.bias is None else {**views, f"{name}bias": parts[0][:, :, size]}
