"""Chain: a model as a plain list of layers, if it is one."""

from __future__ import annotations

import dataclasses

from torch import nn

from mindgap.remedies.dropout import Dropout
from mindgap.training.vectorized.stages import is_stage
from mindgap.training.vectorized.support import Unsupported

Named = tuple[str, nn.Module]


@dataclasses.dataclass(frozen=True)
class Block:
    """A linear layer and the elementwise layers behind it."""

    name: str
    linear: nn.Linear
    stages: tuple[nn.Module, ...]

    @property
    def width(self) -> int:
        """Number of outputs."""
        return self.linear.out_features

    @property
    def columns(self) -> int:
        """Columns of the weight matrix that carries the bias as its last one."""
        return self.linear.in_features + (self.linear.bias is not None)


def layers_of(model: nn.Module) -> list[Named]:
    """The layers of nested ``nn.Sequential``s in order, without those that do nothing."""
    found = [(name, layer) for name, layer in _walk("", model) if type(layer) is not nn.Identity]
    if len({id(layer) for _, layer in found}) != len(found):
        raise Unsupported("a layer is used twice")
    tied = [id(parameter) for _, layer in found for parameter in layer.parameters()]
    if len(set(tied)) != len(tied):
        raise Unsupported("layers share a parameter")
    return found


def _walk(prefix: str, module: nn.Module) -> list[Named]:
    masks = mask_rates(module)
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return [leaf for name, child in module.named_children() for leaf in _walk(f"{prefix}{name}.", child)]
    if any(True for _ in module.children()):
        raise Unsupported(f"{type(module).__name__} is not a plain sequence of layers")
    return [*((f"{prefix}mask.", nn.Dropout(rate)) for rate in masks), (prefix, module)]


def mask_rates(module: nn.Module) -> list[float]:
    """The rates of dropout that the remedy put in front of a layer; other hooks are refused."""
    found = list(module._forward_pre_hooks.values())
    tables = ("_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(type(hook).__module__ != Dropout.__module__ for hook in found) or any(getattr(module, t) for t in tables):
        raise Unsupported(f"the layer {type(module).__name__} has hooks")
    return [hook.rate for hook in found]  # type: ignore[attr-defined]


def is_flatten(layer: nn.Module) -> bool:
    """Whether a layer makes one row a sample."""
    return type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1


def blocks_of(layers: list[Named]) -> list[Block]:
    """Linear layers with what follows each; anything else is refused."""
    blocks: list[Block] = []
    for name, layer in layers:
        if is_flatten(layer):
            continue
        if type(layer) is nn.Linear:
            blocks.append(Block(name, layer, ()))
        elif blocks and is_stage(layer):
            blocks[-1] = dataclasses.replace(blocks[-1], stages=(*blocks[-1].stages, layer))
        else:
            raise Unsupported(f"the layer {type(layer).__name__} is not part of a dense chain")
    if not blocks:
        raise Unsupported("the model has no linear layer")
    return blocks
