"""What penalties on the slope of a network by its inputs have in common."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Losses, Remedy, TrainingState

_SEEN = "seen"


class SlopePenalty(Remedy, abstract=True):
    """Adds to the loss of every sample a factor times the size of a slope at its input.

    The slope is taken at the inputs that the model sees, after all other remedies of the inputs. It
    is part of the sample's loss, so that sample weights count for it too. The gradient by the weights
    goes through the slope: a second backward pass.
    """

    needs = frozenset({"real inputs"})
    treats = frozenset({"adversarial inputs", "noise sensitivity"})

    @abstractmethod
    def slopes(
        self, state: TrainingState, losses: Tensor, output: Tensor, inputs: list[Tensor]
    ) -> Tensor:
        """Compute the penalty of every sample, without the factor.

        Args:
            state: Where training stands.
            losses: One per sample, with their graph.
            output: The model's output, with its graph.
            inputs: The real inputs of the model, which require gradients.
        """

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Run the closure with inputs that know their gradient."""
        with _watched(state.model) as seen:
            state.memory[_SEEN] = seen
            try:
                return closure()
            finally:
                del state.memory[_SEEN]

    def losses(self, state: TrainingState, loss: Losses, output: Tensor, target: Tensor) -> Tensor:
        """Add the penalty to the losses."""
        losses = loss(output, target)
        inputs = state.memory.get(_SEEN)
        if not inputs:
            raise InputError(
                f"The remedy {self.name!r} must see the call of {type(state.model).__name__} with "
                "real inputs, got none before the loss. Call the model itself, as in model(x)."
            )
        factor: float = getattr(self, self.strength)
        return losses + factor * self.slopes(state, losses, output, inputs)


def squared_slopes(values: Tensor, inputs: list[Tensor]) -> Tensor:
    """Compute the squared norm of every sample's gradient by all its inputs, with its graph.

    Args:
        values: One number per sample, or their sum.
        inputs: What they depend on, one sample per row.

    >>> x = torch.tensor([[1.0], [2.0]], requires_grad=True)
    >>> squared_slopes(x.square(), [x]).tolist()
    [4.0, 16.0]
    """
    found = torch.autograd.grad(values.sum(), inputs, create_graph=True, allow_unused=True)
    squares = [slope.flatten(1).square().sum(1) for slope in found if slope is not None]
    return torch.stack(squares).sum(0) if squares else values.new_zeros(len(inputs[0]))


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[Tensor]]:
    """Note the real inputs of the model's last call; they require gradients."""
    seen = list[Tensor]()

    def enter(
        _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(map(_leaf, args)), {name: _leaf(value) for name, value in kwargs.items()}

    # Another remedy's hook may replace what ``enter`` made, so that only the call itself tells.
    def leave(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], __: Any) -> None:
        seen[:] = [value for value in (*args, *kwargs.values()) if _real(value)]

    handles = [
        model.register_forward_pre_hook(enter, with_kwargs=True),
        model.register_forward_hook(leave, with_kwargs=True),
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _leaf(value: Any) -> Any:
    if not _real(value) or value.requires_grad:
        return value
    return value.detach().requires_grad_()
