"""A network as a chain of steps through which paths run, and the gates that samples open on them.

A path starts at an input, or at a bias, and takes one edge of every later layer to an output. Its
weight is the product of the weights on its edges. Its feature z(x) is the input where it starts
(one for a bias) times the gates that x opens along it, so that f(x) = ⟨w, z(x)⟩.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from mindgap.core import InputError, evaluating
from mindgap.core.calls import largest_in_windows

KNOWN = "Linear, Conv2d, BatchNorm behind them, ReLU, LeakyReLU, MaxPool2d and AvgPool2d"
Pair: TypeAlias = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Weights:
    """A layer with weights: dense (a window of None), or a convolution of the given geometry."""

    weight: Tensor
    bias: Tensor | None
    window: "_Window | None" = None

    def __call__(self, units: Tensor) -> Tensor:
        """Apply the layer to units of shape (samples, channels, height, width)."""
        if self.window is None:
            return nn.functional.linear(units.flatten(1), self.weight, self.bias)[..., None, None]
        own = self.window
        return nn.functional.conv2d(
            units, self.weight, self.bias, own.stride, own.padding, own.dilation
        )


@dataclasses.dataclass(frozen=True)
class _Window:
    """The places that a convolution or a pooling sees from each of its outputs."""

    size: Pair
    stride: Pair
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    def slices(self, values: Tensor) -> list[Tensor]:
        """Return, for each place in the window, what all outputs see there.

        Args:
            values: Has height and width as its first two dimensions.
        """
        values = self._padded(values)
        return [part for row in self._along(values, 0) for part in self._along(row, 1)]

    def sums(self, values: Tensor) -> Tensor:
        """Add up what each output sees in its window, along rows and then along columns."""
        values = self._padded(values)
        for axis in (0, 1):
            first, *others = self._along(values, axis)
            values = first.clone()
            for part in others:
                values += part
        return values

    def _along(self, values: Tensor, axis: int) -> list[Tensor]:
        span = self.dilation[axis] * (self.size[axis] - 1)
        count = (values.shape[axis] - span - 1) // self.stride[axis] + 1
        starts = (offset * self.dilation[axis] for offset in range(self.size[axis]))
        reach = (count - 1) * self.stride[axis] + 1
        places = [slice(start, start + reach, self.stride[axis]) for start in starts]
        return [values[place] if axis == 0 else values[:, place] for place in places]

    def _padded(self, values: Tensor) -> Tensor:
        up, left = self.padding
        flat = [0, 0] * (values.ndim - 2)
        return nn.functional.pad(values, [*flat, left, left, up, up]) if up or left else values


@dataclasses.dataclass(frozen=True)
class Rectifier:
    """ReLU, or a leaky one: the gate is 1 above zero, and the slope elsewhere."""

    slope: float = 0.0

    def gate(self, units: Tensor) -> Tensor:
        """Return the gates that the units open."""
        return torch.where(units > 0, units.new_ones(()), units.new_tensor(self.slope))


@dataclasses.dataclass(frozen=True)
class Pool:
    """Max-pooling, whose gate is open at the largest unit; or average pooling, a fixed layer."""

    window: _Window
    average: bool

    def gate(self, units: Tensor) -> Tensor:
        """Return the gates of shape (places in the window, samples, channels, height, width)."""
        high, wide = self.window.size
        if self.average:
            small = nn.functional.avg_pool2d(units, self.window.size, self.window.stride)
            return torch.ones(high * wide, *small.shape).to(units)
        lowest = nn.functional.pad(
            units, [p for p in self.window.padding[::-1] for _ in "lr"], value=-torch.inf
        )
        bare = dataclasses.replace(self.window, padding=(0, 0))
        best, *others = (
            part.permute(2, 3, 0, 1) for part in bare.slices(lowest.permute(2, 3, 0, 1))
        )
        first = torch.zeros(best.shape, dtype=torch.int16)
        for place, seen in enumerate(others, 1):
            # Ties go to the first place, as torch has it.
            first.masked_fill_(seen > best, place)
            best = torch.maximum(best, seen)
        places = torch.arange(1 + len(others), dtype=torch.int16).view(-1, 1, 1, 1, 1)
        return (first == places).to(units)

    def __call__(self, units: Tensor) -> Tensor:
        """Apply the pooling."""
        own = self.window
        if self.average:
            return nn.functional.avg_pool2d(units, own.size, own.stride)
        found = largest_in_windows(units, own.size, own.stride, own.padding)
        if found is None:
            found = nn.functional.max_pool2d(units, own.size, own.stride, own.padding)
        return found

    def summed(self, units: Tensor, weight: float) -> Tensor:
        """Add up what paths bring to the places of each window, with one weight for all edges."""
        own = self.window
        total = nn.functional.avg_pool2d(
            units, own.size, own.stride, own.padding, divisor_override=1
        )
        return total * weight

    @property
    def weight(self) -> float:
        """The weight of an edge from a place to the pooled unit."""
        return 1 / (self.window.size[0] * self.window.size[1]) if self.average else 1.0


Step: TypeAlias = Weights | Rectifier | Pool


@dataclasses.dataclass(frozen=True)
class Chain:
    """The steps of a network in double precision, and the shape of its input.

    Args:
        steps: From input to output.
        shape: Channels, height and width of one sample; vectors have a height and width of one.
    """

    steps: tuple[Step, ...]
    shape: tuple[int, int, int]

    @property
    def layers(self) -> list[Weights]:
        """The steps with weights."""
        return [step for step in self.steps if isinstance(step, Weights)]

    @property
    def is_linear(self) -> bool:
        """Whether no gate depends on the sample."""
        return not any(
            isinstance(step, Rectifier) or (isinstance(step, Pool) and not step.average)
            for step in self.steps
        )

    def shaped(self, inputs: Tensor) -> Tensor:
        """Return inputs as double precision of the chain's shape."""
        return inputs.detach().cpu().double().reshape(-1, *self.shape)

    def run(self, inputs: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """Return the outputs and, step by step, the gates that the samples open.

        >>> chain = read_chain(nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)), (1,))
        >>> outputs, gates = chain.run(torch.tensor([[1.0], [-1.0]]))
        >>> outputs.shape, [None if gate is None else gate.shape for gate in gates]
        (torch.Size([2, 1]), [None, torch.Size([2, 2, 1, 1]), None])
        """
        units, gates = self.shaped(inputs), list[Tensor | None]()
        for step in self.steps:
            gate = None if isinstance(step, Weights) else step.gate(units)
            gates.append(gate)
            if isinstance(step, Rectifier):
                assert gate is not None
                units = units * gate
            else:
                units = step(units)
        return units.flatten(1), gates


def read_chain(model: nn.Module, shape: tuple[int, ...]) -> Chain:
    """Read a model as a chain of layers, by watching one sample on its way through.

    Args:
        model: Calls its layers one after the other. Other models are refused, also where something
            that is no module happens between two layers.
        shape: The shape of one input, without the batch.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> len(read_chain(model, (1, 2, 2)).layers)
    2
    """
    like = next(model.parameters(), None)
    if like is None:
        raise _not_a_chain(model)
    sample = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0)).to(like)
    called, output = _watched(model, sample)
    before, steps = sample, list[Step]()
    for module, entered, left in called:
        if not _same(before, entered):
            raise _not_a_chain(module)
        steps, before = _with(steps, module, entered), left
    if not called or not _same(before, output):
        raise _not_a_chain(model)
    chain = Chain(tuple(steps), _image(shape))
    known = output.double().cpu().reshape(len(output), -1)
    if not chain.layers or not torch.allclose(chain.run(sample)[0], known, rtol=1e-3, atol=1e-4):
        raise _not_a_chain(model)
    return chain


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    return tuple(shape) if len(shape) == 3 else (int(torch.Size(shape).numel()), 1, 1)  # type: ignore[return-value]


def _watched(
    model: nn.Module, sample: Tensor
) -> tuple[list[tuple[nn.Module, Tensor, Tensor]], Tensor]:
    """Return the modules without children in the order of their calls, with what passed them."""
    called: list[tuple[nn.Module, Tensor, Tensor]] = []

    # Both are copied at once, because a layer may work in place.
    def enter(module: nn.Module, entered: tuple[Any, ...]) -> None:
        if len(entered) != 1 or not isinstance(entered[0], Tensor):
            raise _not_a_chain(module)
        called.append((module, entered[0].clone(), entered[0]))

    def leave(module: nn.Module, _: tuple[Any, ...], left: Any) -> None:
        if not isinstance(left, Tensor):
            raise _not_a_chain(module)
        called[-1] = (*called[-1][:2], left.clone())

    leaves = [module for module in model.modules() if not list(module.children())]
    handles = [
        handle
        for module in leaves
        for handle in (
            module.register_forward_pre_hook(enter),
            module.register_forward_hook(leave),
        )
    ]
    try:
        with evaluating(model):
            output = model(sample)
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(output, Tensor):
        raise _not_a_chain(model)
    return called, output


def _same(one: Tensor, other: Tensor) -> bool:
    """Compare what left a layer with what entered the next, which may only be reshaped."""
    return one.numel() == other.numel() and torch.equal(one.flatten(), other.flatten())


def _not_a_chain(module: nn.Module) -> InputError:
    return InputError(
        f"Paths must run through a chain of layers ({KNOWN}), got {type(module).__name__}, which is "
        "another layer or gets more than the output of the layer before it. Choose another measure, "
        "or a network of these layers."
    )


def _with(steps: list[Step], module: nn.Module, entered: Tensor) -> list[Step]:
    """Append the step of a module; batch normalization is folded into the layer before it."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return [*steps[:-1], _folded(steps, module)]
    if isinstance(module, nn.Linear) and entered.ndim != 2:
        raise _not_a_chain(module)
    # A dense layer flattens what it gets, so flattening is no step.
    if isinstance(module, nn.Identity | nn.Flatten | nn.modules.dropout._DropoutNd):
        return steps
    for kind, make in _READERS.items():
        if isinstance(module, kind):
            return [*steps, make(module)]
    raise _not_a_chain(module)


def _folded(steps: list[Step], norm: nn.modules.batchnorm._BatchNorm) -> Weights:
    before = steps[-1] if steps else None
    if not isinstance(before, Weights) or norm.running_mean is None or norm.running_var is None:
        raise _not_a_chain(norm)
    mean, variance = norm.running_mean.double().cpu(), norm.running_var.double().cpu()
    scale = _own(norm.weight, torch.ones_like(mean)) / (variance + norm.eps).sqrt()
    bias = torch.zeros_like(mean) if before.bias is None else before.bias
    moved = (bias - mean) * scale + _own(norm.bias, torch.zeros_like(mean))
    rows = scale.view(-1, *[1] * (before.weight.ndim - 1))
    return dataclasses.replace(before, weight=before.weight * rows, bias=moved)


def _own(value: Tensor | None, default: Tensor) -> Tensor:
    return default if value is None else value.detach().double().cpu()


def _dense(layer: nn.Linear) -> Weights:
    return Weights(layer.weight.detach().double().cpu(), _bias(layer))


def _bias(layer: nn.Linear | nn.Conv2d) -> Tensor | None:
    return None if layer.bias is None else layer.bias.detach().double().cpu()


def _convolution(layer: nn.Conv2d) -> Weights:
    if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        # Channels of a grouped convolution see different paths, so that no product form is left.
        raise InputError(
            "Paths through a convolution need one group, zeros as padding and a padding in numbers, "
            f"got {layer}. Choose another measure, or such a convolution."
        )
    window = _Window(layer.kernel_size, layer.stride, layer.padding, layer.dilation)  # type: ignore[arg-type]
    return Weights(layer.weight.detach().double().cpu(), _bias(layer), window)


def _rectifier(layer: nn.ReLU | nn.LeakyReLU) -> Rectifier:
    slope = float(getattr(layer, "negative_slope", 0.0))
    if not 0 <= slope <= 1:
        raise InputError(
            f"The slope of a leaky ReLU must be from 0 to 1, got {slope}. Choose another measure."
        )
    return Rectifier(slope)


def _pool(layer: nn.MaxPool2d | nn.AvgPool2d) -> Pool:
    average = isinstance(layer, nn.AvgPool2d)
    window = _Window(_pair(layer.kernel_size), _pair(layer.stride), _pair(layer.padding))
    odd = layer.ceil_mode or (average and (window.padding != (0, 0) or layer.divisor_override))
    if odd or _pair(getattr(layer, "dilation", 1)) != (1, 1):
        raise InputError(
            "Paths through a pooling need no dilation, no ceil_mode and, for averages, no padding "
            f"and no divisor, got {layer}. Choose another measure, or such a pooling."
        )
    return Pool(window, average)


def _pair(value: Any) -> Pair:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))


_READERS: dict[type[nn.Module], Callable[[Any], Step]] = {
    nn.Linear: _dense,
    nn.Conv2d: _convolution,
    nn.ReLU: _rectifier,
    nn.LeakyReLU: _rectifier,
    nn.MaxPool2d: _pool,
    nn.AvgPool2d: _pool,
}
