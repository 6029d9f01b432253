"""The layers of a model in the order of their calls, with what passed through them."""

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Inputs, call, evaluating

# These call functions, not the layers that they hold.
WHOLE = (nn.MultiheadAttention,)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a module without children.

    Args:
        name: The name of the module.
        module: The module.
        entered: The first tensor that it was given, or None.
        left: The tensor that it returned, or None.
    """

    name: str
    module: nn.Module
    entered: Tensor | None
    left: Tensor | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return () if self.entered is None else tuple(self.entered.shape[1:])

    @property
    def out(self) -> tuple[int, ...]:
        """The shape of one output."""
        return () if self.left is None else tuple(self.left.shape[1:])


def watched(model: nn.Module, inputs: Tensor | Inputs) -> tuple[list[Call], Tensor]:
    """Call a model in evaluation mode and note the calls of its layers, and its output.

    What passed is kept, not copied: a layer that works in place shows its output as its input.

    Args:
        model: Any module.
        inputs: A batch: one tensor, a tuple of them, or a dict.

    >>> calls, _ = watched(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.zeros(1, 2))
    >>> [(seen.name, seen.out) for seen in calls]
    [('0', (3,)), ('1', (3,))]
    """
    calls, names = list[Call](), {module: name for name, module in model.named_modules()}

    def note(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], left: Any) -> None:
        entered = next((v for v in (*given, *named.values()) if isinstance(v, Tensor)), None)
        first = left[0] if isinstance(left, tuple) and left else left
        calls.append(
            Call(names[module], module, entered, first if isinstance(first, Tensor) else None)
        )

    handles = [
        module.register_forward_hook(note, with_kwargs=True)
        for module in model.modules()
        if isinstance(module, WHOLE) or _is_layer(module, names[module])
    ]
    try:
        with evaluating(model):
            output = call(model, as_inputs(inputs), _like(model))
    finally:
        for handle in handles:
            handle.remove()
    return calls, output


def _is_layer(module: nn.Module, name: str) -> bool:
    """Tell whether a module holds no others but those that make up its weights."""
    inside = "parametrizations" in name.split(".")
    return not inside and all(name == "parametrizations" for name, _ in module.named_children())


def as_inputs(inputs: Tensor | Inputs) -> Inputs:
    """Return a batch as positional or named inputs."""
    return (inputs,) if isinstance(inputs, Tensor) else inputs


def _like(model: nn.Module) -> Tensor:
    tensors = (*model.parameters(), *model.buffers())
    return next((each for each in tensors if each.is_floating_point()), torch.empty(0))
