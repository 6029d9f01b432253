"""A model taken apart into layers; activations and dropout as programs on fixed buffers."""

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.ops.models.sequence import is_sequence
from mindgap.training.vectorized.problem import Unsupported

aten: Any = torch.ops.aten
Operation = Callable[[], object]
Program = list[Operation]


class Stage(abc.ABC):
    """An elementwise layer as two programs."""

    @abc.abstractmethod
    def forward(self, source: Tensor, out: Tensor) -> Program:
        """Write the result for ``source`` into ``out``."""

    @abc.abstractmethod
    def backward(self, gradient: Tensor, source: Tensor, out: Tensor) -> Program:
        """Turn the gradient for ``out`` into that for ``source``, in place."""


class _Activation(Stage):
    """A function with torch's own kernels.

    Args:
        run: Writes the result for a source.
        back: Writes the gradient for the source.
        of_result: Whether ``back`` needs the result instead of the source.
    """

    def __init__(self, run: Callable[..., Any], back: Callable[..., Any], of_result: bool) -> None:
        self.run, self.back, self.of_result = run, back, of_result

    def forward(self, source: Tensor, out: Tensor) -> Program:
        """Make a program of one operation."""
        return [functools.partial(self.run, source, out=out)]

    def backward(self, gradient: Tensor, source: Tensor, out: Tensor) -> Program:
        """Make a program of one operation."""
        return [
            functools.partial(
                self.back, gradient, out if self.of_result else source, grad_input=gradient
            )
        ]


class Drop(Stage):
    """Dropout with masks from one generator for all members, so not those of the plain loop."""

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        self.rate, self.generator = rate, generator
        self._mask = torch.empty(0)

    def forward(self, source: Tensor, out: Tensor) -> Program:
        """Draw a mask and apply it."""
        self._mask = torch.empty(source.shape, dtype=source.dtype, device=source.device)
        return [self._draw(self._mask), functools.partial(torch.mul, source, self._mask, out=out)]

    def backward(self, gradient: Tensor, source: Tensor, out: Tensor) -> Program:  # noqa: ARG002
        """Apply the same mask to the gradient."""
        return [functools.partial(torch.mul, gradient, self._mask, out=gradient)]

    def _draw(self, mask: Tensor) -> Operation:
        keep, generator = 1 - self.rate, self.generator
        if keep == 0:
            return mask.zero_
        return lambda: mask.bernoulli_(keep, generator=generator).div_(keep)


def _elu(layer: nn.ELU) -> _Activation:
    def run(source: Tensor, out: Tensor) -> object:
        return aten.elu.out(source, layer.alpha, 1, 1, out=out)

    def back(gradient: Tensor, source: Tensor, grad_input: Tensor) -> object:
        return aten.elu_backward.grad_input(
            gradient, layer.alpha, 1, 1, False, source, grad_input=grad_input
        )

    return _Activation(run, back, False)


def _leaky(layer: nn.LeakyReLU) -> _Activation:
    def run(source: Tensor, out: Tensor) -> object:
        return aten.leaky_relu.out(source, layer.negative_slope, out=out)

    def back(gradient: Tensor, source: Tensor, grad_input: Tensor) -> object:
        slope = layer.negative_slope
        return aten.leaky_relu_backward.grad_input(
            gradient, source, slope, False, grad_input=grad_input
        )

    return _Activation(run, back, False)


def _softplus(layer: nn.Softplus) -> _Activation:
    def run(source: Tensor, out: Tensor) -> object:
        return aten.softplus.out(source, layer.beta, layer.threshold, out=out)

    def back(gradient: Tensor, source: Tensor, grad_input: Tensor) -> object:
        return aten.softplus_backward.grad_input(
            gradient, source, layer.beta, layer.threshold, grad_input=grad_input
        )

    return _Activation(run, back, False)


def _gelu(layer: nn.GELU) -> _Activation:
    def run(source: Tensor, out: Tensor) -> object:
        # With ``out=``, torch's kernel gives wrong numbers for a tensor that is not contiguous.
        return out.copy_(layer(source))

    def back(gradient: Tensor, source: Tensor, grad_input: Tensor) -> object:
        return grad_input.copy_(aten.gelu_backward(gradient, source, approximate=layer.approximate))

    return _Activation(run, back, False)


def _relu(_: nn.Module) -> _Activation:
    def run(source: Tensor, out: Tensor) -> object:
        return torch.clamp_min(source, 0, out=out)

    def back(gradient: Tensor, result: Tensor, grad_input: Tensor) -> object:
        return aten.threshold_backward.grad_input(gradient, result, 0, grad_input=grad_input)

    return _Activation(run, back, True)


_ACTIVATIONS: dict[type[nn.Module], Callable[[Any], _Activation]] = {
    nn.ReLU: _relu,
    nn.Tanh: lambda _: _Activation(torch.tanh, aten.tanh_backward.grad_input, True),
    nn.Sigmoid: lambda _: _Activation(torch.sigmoid, aten.sigmoid_backward.grad_input, True),
    nn.SiLU: lambda _: _Activation(aten.silu.out, aten.silu_backward.grad_input, False),
    nn.GELU: _gelu,
    nn.ELU: _elu,
    nn.LeakyReLU: _leaky,
    nn.Softplus: _softplus,
}


def is_stage(layer: nn.Module) -> bool:
    """Tell whether a layer is an activation or dropout that this file knows."""
    return type(layer) in _ACTIVATIONS or type(layer) is nn.Dropout


def stage_of(layer: nn.Module, generator: torch.Generator) -> Stage:
    """Make the stage for a layer."""
    if type(layer) is nn.Dropout:
        return Drop(layer.p, generator)
    if type(layer) not in _ACTIVATIONS:
        raise Unsupported(f"the layer {type(layer).__name__} has no derivative by hand")
    return _ACTIVATIONS[type(layer)](layer)


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
    """List the layers of nested ``nn.Sequential``s in order, without identities."""
    found = [(name, layer) for name, layer in _walk("", model) if type(layer) is not nn.Identity]
    if len({id(layer) for _, layer in found}) != len(found):
        raise Unsupported("a layer is used twice")
    tied = [id(parameter) for _, layer in found for parameter in layer.parameters()]
    if len(set(tied)) != len(tied):
        raise Unsupported("layers share a parameter")
    return found


def _walk(prefix: str, module: nn.Module) -> list[Named]:
    before = _layers_before(module)
    if is_sequence(module):
        # Not named_children(), which name a layer once that is called in several places.
        return [
            leaf
            for name, child in module._modules.items()
            if child is not None
            for leaf in _walk(f"{prefix}{name}.", child)
        ]
    if any(True for _ in module.children()):
        raise Unsupported(f"{type(module).__name__} is not a plain sequence of layers")
    return [*((f"{prefix}hook.", layer) for layer in before), (prefix, module)]


def _layers_before(module: nn.Module) -> list[nn.Module]:
    """The layers that a remedy's hooks put in front of a module; other hooks are refused."""
    found = [getattr(hook, "layer", None) for hook in module._forward_pre_hooks.values()]
    tables = ("_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
    layers = [layer for layer in found if isinstance(layer, nn.Module)]
    if len(layers) < len(found) or any(getattr(module, table) for table in tables):
        raise Unsupported(f"the layer {type(module).__name__} has hooks")
    return layers


def is_flatten(layer: nn.Module) -> bool:
    """Tell whether a layer makes one row per sample."""
    return type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1


def blocks_of(layers: list[Named]) -> list[Block]:
    """List linear layers, each with the stages behind it; refuse anything else."""
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
