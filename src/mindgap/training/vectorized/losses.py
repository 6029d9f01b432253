"""Losses and their derivatives for outputs of shape (members, outputs, batch)."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mindgap.core import Loss
from mindgap.training.vectorized.hooks import Hooks
from mindgap.training.vectorized.layers import Operation, Program, aten
from mindgap.training.vectorized.problem import Problem


class Ends:
    """What a loss reads and writes.

    Args:
        output: (members, outputs, batch).
        target: Broadcasts against ``output``.
        weights: Sample weights, which broadcast likewise.
        gradient: Where to leave the derivative by ``output``.
        value: Where to leave the loss, one entry per member.
    """

    def __init__(
        self,
        output: Tensor,
        target: Tensor,
        weights: Tensor | None,
        gradient: Tensor,
        value: Tensor,
    ) -> None:
        self.output, self.target, self.weights, self.gradient, self.value = (
            output,
            target,
            weights,
            gradient,
            value,
        )
        self.members, self.outputs, self.batch = output.shape
        self.count = self.outputs * self.batch

    def weigh(self, tensor: Tensor) -> Program:
        """Multiply by the weights, if there are any."""
        return (
            []
            if self.weights is None
            else [functools.partial(torch.mul, tensor, self.weights, out=tensor)]
        )

    def total(self, elements: Tensor, count: int) -> Program:
        """Write the mean of weighted elements to ``value``."""

        def add_up() -> None:
            torch.sum(elements, (1, 2), out=self.value)
            self.value.div_(count)

        return [*self.weigh(elements), add_up]


def scaled(tensor: Tensor, factor: float) -> Operation:
    """Multiply in place; a tensor as factor is twice as fast as a Python number."""
    return functools.partial(
        tensor.mul_, torch.full((), factor, dtype=tensor.dtype, device=tensor.device)
    )


def squared(ends: Ends) -> Program:
    """Compute the mean squared error as a dot product of residuals and weighted residuals."""
    residual, pull, count = torch.empty_like(ends.gradient), ends.gradient, ends.count
    row, column = pull.view(ends.members, 1, count), residual.view(ends.members, count, 1)
    if ends.weights is None:
        residual, column = pull, pull.view(ends.members, count, 1)
    value = ends.value.view(ends.members, 1, 1)
    weigh = (
        []
        if ends.weights is None
        else [functools.partial(torch.mul, residual, ends.weights, out=pull)]
    )
    return [
        functools.partial(torch.sub, ends.output, ends.target, out=residual),
        *weigh,
        functools.partial(torch.baddbmm, value, row, column, beta=0, alpha=1 / count, out=value),
        scaled(pull, 2 / count),
    ]


def absolute(ends: Ends) -> Program:
    """Compute the mean absolute error."""
    elements, pull = torch.empty_like(ends.gradient), ends.gradient
    return [
        functools.partial(torch.sub, ends.output, ends.target, out=elements),
        functools.partial(torch.sign, elements, out=pull),
        elements.abs_,
        *ends.total(elements, ends.count),
        *ends.weigh(pull),
        scaled(pull, 1 / ends.count),
    ]


def huber(ends: Ends) -> Program:
    """Compute Huber's loss, whose derivative is the residual, cut at one."""
    elements, pull = torch.empty_like(ends.gradient), ends.gradient
    target = ends.target.expand_as(ends.output)
    return [
        functools.partial(torch.sub, ends.output, ends.target, out=pull),
        functools.partial(pull.clamp_, -1, 1),
        functools.partial(aten.huber_loss.out, ends.output, target, 0, 1.0, out=elements),
        *ends.total(elements, ends.count),
        *ends.weigh(pull),
        scaled(pull, 1 / ends.count),
    ]


def logistic(ends: Ends) -> Program:
    """Compute the binary cross entropy of logits, log(1 + eᶻ) - y z."""
    elements, pull = torch.empty_like(ends.gradient), ends.gradient
    return [
        functools.partial(torch.mul, ends.output, ends.target, out=pull),
        functools.partial(aten.softplus.out, ends.output, out=elements),
        functools.partial(elements.sub_, pull),
        *ends.total(elements, ends.count),
        functools.partial(torch.sigmoid, ends.output, out=pull),
        functools.partial(pull.sub_, ends.target),
        *ends.weigh(pull),
        scaled(pull, 1 / ends.count),
    ]


def _entropic(ends: Ends) -> Program:
    """Compute the cross entropy, whose derivative is softmax minus the indicator of the class."""
    pull, labels = ends.gradient, ends.target.expand(ends.members, 1, ends.batch)
    picked = torch.empty_like(pull[:, :1])
    minus = torch.full_like(picked, -1)
    return [
        functools.partial(aten._log_softmax.out, ends.output, 1, False, out=pull),
        functools.partial(torch.gather, pull, 1, labels, out=picked),
        picked.neg_,
        *ends.total(picked, ends.batch),
        pull.exp_,
        functools.partial(pull.scatter_add_, 1, labels, minus),
        *ends.weigh(pull),
        scaled(pull, 1 / ends.batch),
    ]


BY_HAND: dict[str, Callable[[Ends], Program]] = {
    "mse": squared,
    "l1": absolute,
    "huber": huber,
    "bce": logistic,
    "cross_entropy": _entropic,
}


def loss_program(problem: Problem, ends: Ends, label: Tensor, members: Sequence[int]) -> Program:
    """Make the program of a problem's loss: by hand, by torch, or with the remedies' hooks.

    Args:
        problem: Names the loss and the hooks.
        ends: What the loss reads and writes.
        label: (members, batch, …), as the loss takes it.
        members: The members to whom the rows of ``ends`` belong.
    """
    if problem.hooks.changes_losses:
        return _hooked(problem.hooks, ends, label, members)
    by_hand = BY_HAND.get(problem.named_loss)
    return by_hand(ends) if by_hand else _any_loss(problem.loss, ends, label)


def _hooked(hooks: Hooks, ends: Ends, label: Tensor, members: Sequence[int]) -> Program:
    ones = torch.ones(1, 1, 1).to(ends.output)
    weights = (ones if ends.weights is None else ends.weights)[:, 0]

    def run() -> None:
        spread = weights.expand(ends.members, ends.batch)
        slope, value = hooks.slopes(members, ends.output.transpose(1, 2), label, spread)
        ends.gradient.copy_(slope.transpose(1, 2))
        ends.value.copy_(value)

    return [run]


def _any_loss(loss: Loss, ends: Ends, target: Tensor) -> Program:
    """Differentiate any callable by torch; ``target`` is (members, batch, …)."""
    weights = torch.ones(1, 1, 1).to(ends.output) if ends.weights is None else ends.weights

    def one(output: Tensor, label: Tensor, weight: Tensor) -> Tensor:
        return (loss(output, label) * weight).mean()

    both = torch.func.vmap(torch.func.grad_and_value(one))

    def run() -> None:
        slope, value = both(
            ends.output.transpose(1, 2), target, weights[:, 0].expand(ends.members, -1)
        )
        ends.gradient.copy_(slope.transpose(1, 2))
        ends.value.copy_(value)

    return [run]
