"""Batch normalization folded into the layer before it, and checked: the function stays the same."""

import dataclasses
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from mindgap.core import InputError, Inputs, call, copied, evaluating, implements, mapped
from mindgap.ops.norms.watch import Call, as_inputs, watched
from mindgap.ops.norms.weighted import CONVOLUTIONS, TRANSPOSED

LAYERS = (nn.Linear, *CONVOLUTIONS, *TRANSPOSED)
CHANGE = 1e-5  # of the outputs, relative to the largest, which rounding explains


@dataclasses.dataclass(frozen=True)
class Folded:
    """A model without batch normalization that computes the same.

    Args:
        model: In double precision, on the CPU, in evaluation mode.
        into: The layer that took up each normalization, by the names of both. A normalization
            that no layer could take up has its own name: a linear layer stands in its place.
        change: The largest change of an output, relative to the largest output.
    """

    model: nn.Module
    into: dict[str, str]
    change: float


@implements("E10", cites=("ioffe2015batch",))
def folded(model: nn.Module, inputs: Tensor | Inputs) -> Folded:
    r"""Copy a model with every BatchNorm folded into the layer whose output it gets.

    Formula: $W' = \frac{\gamma}{\sqrt{v + \epsilon}} W, \quad b' = \frac{\gamma (b - \mu)}{\sqrt{v +
    \epsilon}} + \beta$

    Reading: Norms of weights say nothing while a normalization undoes their scale. A normalization
    behind something else, such as a ReLU, becomes a linear layer of its own.

    Assumes: Running statistics. The outputs are compared: a copy that computes something else is
    refused.

    Args:
        model: Any module; it is not changed.
        inputs: A batch on which the outputs are compared.

    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.BatchNorm1d(3), nn.ReLU())
    >>> folded(net, torch.randn(4, 2)).into
    {'1': '0'}
    """
    given = mapped(as_inputs(inputs), as_double)
    original = _plain(copied(model).cpu().double().eval())
    calls, before = watched(original, given)
    pairs = _pairs(calls)
    # A layer whose output is also read elsewhere must keep it; then nothing is folded.
    for chosen in (pairs, {}):
        other = copied(original)
        into = _folded_in_place(other, calls, chosen)
        with evaluating(other):
            after = call(other, given, torch.empty(0, dtype=torch.double))
        change = float((after - before).abs().max() / before.abs().max().clamp(min=1e-300))
        if change <= CHANGE:
            return Folded(other, into, change)
    raise InputError(
        "Batch normalization must be a layer that can be replaced by a linear one, got a model whose "
        f"outputs then change by {change:.2g} of the largest. Choose a measure without norms."
    )


@torch.no_grad()
def _plain(model: nn.Module) -> nn.Module:
    """Give parametrized layers, as those of weight normalization, the weights that they use."""
    found = dict[nn.Module, nn.Module]()
    for name, layer in list(model.named_modules(remove_duplicate=False)):
        if not parametrize.is_parametrized(layer):
            continue
        # Removing them would change the class, which the copy shares with the user's layer.
        base: Any = type(layer).__bases__[0]
        plain = found.setdefault(layer, base.__new__(base))
        plain.__dict__.update(layer.__dict__)
        own = layer.parametrizations
        weights = {key: nn.Parameter(getattr(layer, key)) for key in own}
        plain._parameters = {**layer._parameters, **weights}
        plain._modules = {k: v for k, v in layer._modules.items() if v is not own}
        if not name:
            return plain
        _replace(model, name, plain)
    return model


def as_double(value: Tensor) -> Tensor:
    """Bring real numbers to the CPU in double precision; others keep their type."""
    value = value.detach().cpu()
    return value.double() if value.is_floating_point() else value


def _pairs(calls: list[Call]) -> dict[str, str]:
    """Find normalizations that get exactly what a layer returned, both called once."""
    times = Counter(seen.name for seen in calls)
    made = {id(seen.left): seen for seen in calls if isinstance(seen.module, LAYERS)}
    found = {}
    for seen in calls:
        source = made.get(id(seen.entered))
        if isinstance(seen.module, _BatchNorm) and source is not None:
            # A dense layer on sequences has its features last, where no BatchNorm looks for them.
            fits = not isinstance(source.module, nn.Linear) or len(source.out) == 1
            if fits and times[seen.name] == times[source.name] == 1:
                found[seen.name] = source.name
    return found


def _folded_in_place(model: nn.Module, calls: list[Call], pairs: dict[str, str]) -> dict[str, str]:
    norms = {seen.name: seen for seen in calls if isinstance(seen.module, _BatchNorm)}
    into = {}
    for name, seen in norms.items():
        scale, shift = affine(model.get_submodule(name), name)
        if name in pairs:
            _take_up(model.get_submodule(pairs[name]), scale, shift)
        own = nn.Identity() if name in pairs else _as_layer(scale, shift, seen.shape)
        _replace(model, name, own)
        into[name] = pairs.get(name, name)
    return into


def affine(norm: Any, name: str = "") -> tuple[Tensor, Tensor]:
    """Return the scale and the shift by which a BatchNorm changes every channel in evaluation mode.

    >>> norm = nn.BatchNorm1d(1, eps=0.0)
    >>> affine(norm)
    (tensor([1.], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    if norm.running_mean is None or norm.running_var is None:
        raise InputError(
            f"BatchNorm must have running statistics to be folded, got {name or 'one'} without. "
            "Choose a measure without norms."
        )
    mean, spread = norm.running_mean.double(), (norm.running_var.double() + norm.eps).sqrt()
    scale = (
        torch.ones_like(mean) if norm.weight is None else norm.weight.detach().double()
    ) / spread
    bias = torch.zeros_like(mean) if norm.bias is None else norm.bias.detach().double()
    return scale, bias - scale * mean


def _take_up(layer: Any, scale: Tensor, shift: Tensor) -> None:
    weight = layer.weight.detach()
    if isinstance(layer, TRANSPOSED):
        parts = weight.view(layer.groups, -1, *weight.shape[1:])
        rows = scale.view(layer.groups, 1, -1, *[1] * (weight.ndim - 2))
        moved = (parts * rows).view(weight.shape)
    else:
        moved = weight * scale.view(-1, *[1] * (weight.ndim - 1))
    bias = shift if layer.bias is None else scale * layer.bias.detach() + shift
    layer.weight, layer.bias = nn.Parameter(moved), nn.Parameter(bias)


def _as_layer(scale: Tensor, shift: Tensor, shape: tuple[int, ...]) -> nn.Module:
    """Write a normalization as a layer: a diagonal matrix, or a convolution of single places."""
    size, layer = len(scale), nn.Linear(1, 1)
    if len(shape) == 1:
        layer = nn.Linear(size, size, dtype=torch.double)
        weight = torch.diag(scale)
    else:
        layer = CONVOLUTIONS[len(shape) - 2](size, size, 1, groups=size, dtype=torch.double)  # type: ignore[assignment]
        weight = scale.view(-1, *[1] * len(shape))
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(shift)
    return layer.eval()


def _replace(model: nn.Module, name: str, own: nn.Module) -> None:
    if not name:
        raise InputError(
            "A model must hold its BatchNorm as a layer, got one that is nothing else. Wrap it in "
            "nn.Sequential."
        )
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, own)
