"""The dense engine: stacked weight matrices, with passes written by hand.

Activations have the shape (members, features, batch) and a last row of ones, and the bias is the
last column of the weight matrix. So one product gives the values of a layer, and one its whole
gradient. A pass is a list of operations on fixed buffers: once it runs, nothing is allocated.
"""

import functools

import torch
from torch import Tensor, nn

from mindgap.core import Inputs
from mindgap.training.batches import epoch_seed
from mindgap.training.vectorized.batches import Columns
from mindgap.training.vectorized.engine import Engine
from mindgap.training.vectorized.layers import (
    Block,
    Program,
    Stage,
    blocks_of,
    is_flatten,
    layers_of,
    stage_of,
)
from mindgap.training.vectorized.losses import Ends, loss_program
from mindgap.training.vectorized.parameters import Store
from mindgap.training.vectorized.problem import Problem, Unsupported, all_trainable


class Pass:
    """Buffers and programs of a dense chain for one batch size.

    ``weights`` and ``gradients`` are (members, width, columns). ``output_gradient`` must be filled
    between the programs of :meth:`forward` and :meth:`backward`.
    """

    def __init__(
        self,
        blocks: list[Block],
        weights: list[Tensor],
        gradients: list[Tensor],
        batch: int,
        random: torch.Generator,
    ) -> None:
        self.blocks, self.weights, self.gradients = blocks, weights, gradients
        members, new = len(weights[0]), functools.partial(torch.empty, dtype=weights[0].dtype)
        self.values = [new(members, block.width, batch) for block in blocks]
        self.slopes = [new(members, block.width, batch) for block in blocks]
        self.stages: list[list[Stage]] = [
            [stage_of(layer, random) for layer in block.stages] for block in blocks
        ]
        ahead = [*(block.columns for block in blocks[1:]), blocks[-1].width]
        self.results = [torch.ones(members, rows, batch, dtype=weights[0].dtype) for rows in ahead]
        self.paths = [self._path(k) for k in range(len(blocks))]

    def _path(self, k: int) -> list[Tensor]:
        """The tensors from a linear layer to the next: its values, then those after each stage."""
        last = self.results[k][:, : self.blocks[k].width]
        stages = self.stages[k]
        if not stages and k == len(self.blocks) - 1:
            return [self.values[k]]
        return [self.values[k], *(torch.empty_like(self.values[k]) for _ in stages[:-1]), last]

    @property
    def output(self) -> Tensor:
        """The chain's result, (members, outputs, batch)."""
        return self.paths[-1][-1]

    @property
    def output_gradient(self) -> Tensor:
        """Where the loss leaves its derivative."""
        return self.slopes[-1]

    def forward(self, inputs: Tensor) -> Program:
        """Make the program from inputs to the output.

        Args:
            inputs: (members, columns, batch), or (columns, batch) if all members see the same.
        """
        program: Program = []
        for k, path in enumerate(self.paths):
            program += [self._apply(k, inputs if k == 0 else self.results[k - 1])]
            for stage, source, out in zip(self.stages[k], path, path[1:], strict=False):
                program += stage.forward(source, out)
            if not self.stages[k] and len(path) == 2:
                program += [functools.partial(path[1].copy_, path[0])]
        return program

    def _apply(self, k: int, inputs: Tensor) -> functools.partial[Tensor]:
        weights, values = self.weights[k], self.values[k]
        if inputs.ndim == 2:
            return functools.partial(
                torch.mm, weights.flatten(0, 1), inputs, out=values.flatten(0, 1)
            )
        return functools.partial(torch.bmm, weights, inputs, out=values)

    def backward(self, inputs: Tensor, input_gradient: Tensor | None = None) -> Program:
        """Make the program from ``output_gradient`` to the gradients of the weights.

        Args:
            inputs: What :meth:`forward` was given.
            input_gradient: Where to leave the gradient for the inputs, (members, batch, features).
        """
        program: Program = []
        for k in reversed(range(len(self.blocks))):
            slope, path = self.slopes[k], self.paths[k]
            for i in reversed(range(len(self.stages[k]))):
                program += self.stages[k][i].backward(slope, path[i], path[i + 1])
            program += [self._weight_gradient(k, inputs if k == 0 else self.results[k - 1])]
            if k:
                program += [self._pulled_back(k)]
        if input_gradient is not None:
            first = self.weights[0][:, :, : self.blocks[0].linear.in_features]
            program += [functools.partial(torch.bmm, self.slopes[0].mT, first, out=input_gradient)]
        return program

    def _weight_gradient(self, k: int, inputs: Tensor) -> functools.partial[Tensor]:
        slope, out = self.slopes[k], self.gradients[k]
        if inputs.ndim == 2:
            return functools.partial(
                torch.mm, slope.flatten(0, 1), inputs.t(), out=out.flatten(0, 1)
            )
        return functools.partial(torch.bmm, slope, inputs.mT, out=out)

    def _pulled_back(self, k: int) -> functools.partial[Tensor]:
        turned = self.weights[k][:, :, : self.blocks[k].linear.in_features].mT
        # With one output the product is an outer one, which a broadcast multiplication does faster.
        product = torch.mul if self.blocks[k].width == 1 else torch.bmm
        return functools.partial(product, turned, self.slopes[k], out=self.slopes[k - 1])


class Dense(Engine):
    """Chains of linear layers and activations."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        all_trainable(problem)
        self.blocks, data = dense_chain(problem)
        self.random = torch.Generator()
        self._drops = any(
            type(layer) is nn.Dropout for block in self.blocks for layer in block.stages
        )
        self.columns = Columns(problem, data, self.blocks[0], self.blocks[-1].width)
        store = Store(
            problem.members, [(block.width, block.columns) for block in self.blocks], problem.like
        )
        self.adopt(store, views_of(self.blocks, store.segments))
        self._programs = self._compile()

    def _compile(self) -> list[Program]:
        sizes = {stop - start for start, stop in self.bounds}
        store = self.store
        passes = {
            size: Pass(self.blocks, store.segments, store.gradients, size, self.random)
            for size in sizes
        }
        return [
            self._program(step, passes[stop - start])
            for step, (start, stop) in enumerate(self.bounds)
        ]

    def _program(self, step: int, run: Pass) -> Program:
        batch = self.columns.batch(step)
        ends = Ends(run.output, batch.target, batch.weights, run.output_gradient, self.losses[step])
        loss = loss_program(self.problem, ends, batch.label, range(self.problem.members))
        return [*batch.fetch, *run.forward(batch.inputs), *loss, *run.backward(batch.inputs)]

    def begin(self, epoch: int) -> None:
        """Gather the samples of the epoch."""
        if self._drops:
            self.random.manual_seed(epoch_seed(self.problem.seeds[0], epoch))
        if not self.columns.shared:
            self.columns.gather(self.orders.places(epoch))

    def gradient(self, step: int) -> None:
        """Run the step's program."""
        for operation in self._programs[step]:
            operation()

    def outputs(self, inputs: Inputs) -> Tensor:
        """Compute the outputs of all members at once."""
        assert not isinstance(inputs, dict)
        values: Tensor = inputs[0].to(self.problem.like).flatten(1).t()
        for block, weights in zip(self.blocks, self.store.segments, strict=True):
            values = torch.matmul(weights[:, :, : block.linear.in_features], values)
            values = values if block.linear.bias is None else values + weights[:, :, -1:]
            for layer in block.stages:
                values = values if type(layer) is nn.Dropout else layer(values)
        return values.mT


def dense_chain(problem: Problem) -> tuple[list[Block], Tensor]:
    """Take a dense chain apart into its blocks, and its inputs into rows."""
    layers, data = layers_of(problem.models[0]), problem.single_input()
    if data.ndim != 2:
        if not is_flatten(layers[0][1]):
            raise Unsupported("the inputs are not rows of numbers")
        data = data.flatten(1)
    return blocks_of(layers), data


def views_of(blocks: list[Block], segments: list[Tensor]) -> dict[str, Tensor]:
    """Find where each parameter lies in the stacked matrices."""
    views: dict[str, Tensor] = {}
    for block, segment in zip(blocks, segments, strict=True):
        views[f"{block.name}weight"] = segment[:, :, : block.linear.in_features]
        if block.linear.bias is not None:
            views[f"{block.name}bias"] = segment[:, :, -1]
    return views
