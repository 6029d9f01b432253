"""The small networks and data of the conditioning studies."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mindgap.core import generator
from mindgap.data import digits
from mindgap.nets import Transformer
from mindgap.studies.conditioning.steps import Pair

SYMBOLS, LENGTH = 8, 12  # of the sequences
# Without a norm; batch, layer and group normalization; weight normalization started by torch's
# rule, or so that every unit has mean 0 and variance 1 on data; standardized weights with group
# normalization, as published; and scaled, without any other norm.
NORMS = (
    "none",
    "batch",
    "layer",
    "group",
    "weight",
    "weight, data-based",
    "standardized + group",
    "scaled standardized",
)
SEQUENCE_NORMS = ("none", "layer", "weight", "weight, data-based", "scaled standardized")
RELU_GAIN = math.sqrt(2 / (1 - 1 / math.pi))  # makes the variance after ReLU one (Brock et al.)


class Normalized(nn.Module):
    """Weights as gain times direction, by unit; torch's own has no forward derivatives."""

    def forward(self, gain: Tensor, direction: Tensor) -> Tensor:
        """Multiply the unit vectors of the directions by their gains."""
        flat = direction.flatten(1)
        found: Tensor = gain * flat / flat.norm(dim=1, keepdim=True)
        return found.view_as(direction)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Divide a weight into gains and directions."""
        return weight.flatten(1).norm(dim=1, keepdim=True), weight


class Standardized(nn.Module):
    """Weights of every unit with mean 0, and variance 1 or 1/fan-in.

    Args:
        scaled: Variance 1/fan-in times a learned gain, as for networks without other norms.
        units: Number of units.
    """

    def __init__(self, units: int, *, scaled: bool) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((units, 1), RELU_GAIN)) if scaled else None

    def forward(self, weight: Tensor) -> Tensor:
        """Standardize a weight of shape (units, …)."""
        flat = weight.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / (
            flat.std(1, correction=0, keepdim=True) + 1e-5
        )
        if self.gain is not None:
            flat = self.gain * flat / math.sqrt(flat.shape[1])
        return flat.view_as(weight)


def convolutional(norm: str, *, layers: int = 6, width: int = 16) -> nn.Module:
    """Make a convolutional network for gray images with a norm before every ReLU.

    Args:
        norm: One of ``NORMS``.
        layers: Number of 3×3 convolutions.
        width: Channels of each.

    >>> convolutional("batch")(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    stack: list[nn.Module] = []
    for layer in range(layers):
        convolution = nn.Conv2d(width if layer else 1, width, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        stack.append(_weighted(convolution, norm))
        stack += [_norm(norm, width), nn.ReLU()]
        if layer == 1:  # the others see 4×4 places: quick
            stack.append(nn.AvgPool2d(2))
    return nn.Sequential(*stack, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def _norm(name: str, width: int) -> nn.Module:
    if name == "batch":
        return nn.BatchNorm2d(width)
    if name == "layer":
        return nn.GroupNorm(1, width)
    return nn.GroupNorm(4, width) if "group" in name else nn.Identity()


def _weighted(layer: nn.Conv2d | nn.Linear, norm: str) -> nn.Module:
    if norm.startswith("weight"):
        parametrize.register_parametrization(layer, "weight", Normalized())
    if "standardized" in norm:
        change = Standardized(len(layer.weight), scaled="scaled" in norm)
        parametrize.register_parametrization(layer, "weight", change)
    return layer


@torch.no_grad()
def start_on_data(model: nn.Module, inputs: Tensor) -> nn.Module:
    """Set gain and bias of weight-normalized layers so that every unit has mean 0 and variance 1.

    One layer after the other, in the order of the forward pass (Salimans and Kingma, 2016).

    Args:
        model: With weight-normalized layers.
        inputs: The first batch.
    """

    def start(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        dims = (0, 2, 3) if output.ndim == 4 else tuple(range(output.ndim - 1))
        mean, scale = output.mean(dims), output.std(dims) + 1e-8
        _scaling(layer).div_(scale[:, None])
        layer.bias.sub_(mean).div_(scale)  # type: ignore[operator]
        again: Tensor = layer.forward(*given)
        return again

    wanted = [
        layer
        for layer in model.modules()
        if parametrize.is_parametrized(layer, "weight") and isinstance(layer, nn.Linear | nn.Conv2d)
    ]
    hooks = [layer.register_forward_hook(start) for layer in wanted]
    model(inputs)
    for hook in hooks:
        hook.remove()
    return model


def sequential(norm: str) -> nn.Module:
    """Make a small transformer whose layer normalization is replaced by another norm.

    Args:
        norm: One of ``SEQUENCE_NORMS``.

    >>> sequential("none")(torch.zeros(2, 12).long()).shape
    torch.Size([2, 8])
    """
    model = Transformer(
        SYMBOLS, SYMBOLS, LENGTH, width=32, heads=2, layers=2, causal=False, readout="mean"
    )
    if norm == "layer":
        return model
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(parent, name, nn.Identity())
    for layer in list(model.modules()):
        if isinstance(layer, nn.Linear) and layer is not model.head:
            _weighted(layer, norm)
    return model


def images() -> tuple[Pair, Pair]:
    """Return the 8×8 digits, divided for training and testing."""
    data = digits()
    assert data.test is not None
    return (data.inputs.view(-1, 1, 8, 8), data.targets), (
        data.test[0].view(-1, 1, 8, 8),
        data.test[1],
    )


def sequences(count: int, seed: int) -> Pair:
    """Draw sequences of symbols; the class is the symbol that follows the first zero.

    Args:
        count: How many.
        seed: Seed of the draws.

    >>> inputs, classes = sequences(3, seed=0)
    >>> inputs.shape, classes.shape
    (torch.Size([3, 12]), torch.Size([3]))
    """
    source = generator(seed)
    rows = torch.randint(1, SYMBOLS, (count, LENGTH), generator=source)
    place = torch.randint(0, LENGTH - 1, (count,), generator=source)
    every = torch.arange(count)
    rows[every, place] = 0
    return rows, rows[every, place + 1]


NETWORKS: dict[str, Callable[[str], nn.Module]] = {
    "CNN": convolutional,
    "transformer": sequential,
}


def started(network: str, norm: str, inputs: Tensor, factor: float) -> nn.Module:
    """Make a network with the initial weights of its layers multiplied by a factor.

    Args:
        network: A key of ``NETWORKS``.
        norm: One of its norms.
        inputs: A batch that starts the data-based weight normalization, after the factor.
        factor: The factor; standardized weights do not feel it.
    """
    model = NETWORKS[network](norm)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                _scaling(layer).mul_(factor)
    return start_on_data(model, inputs) if norm == "weight, data-based" else model


def _scaling(layer: Any) -> Tensor:
    """Return the tensor that scales a layer's weights: the gain where they are normalized."""
    if not parametrize.is_parametrized(layer, "weight"):
        found: Tensor = layer.weight
    else:
        held = layer.parametrizations.weight
        found = held.original0 if hasattr(held, "original0") else held.original
    return found
