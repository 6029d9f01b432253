"""The small networks and data of the conditioning studies."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from mindgap.core import generator
from mindgap.data import digits
from mindgap.nets import Transformer
from mindgap.studies.conditioning.steps import Pair

SYMBOLS, LENGTH = 8, 12  # of the sequences
# Without a norm; batch, layer and group normalization; weight normalization started by torch's
# rule, or so that every unit has mean 0 and variance 1 on data; standardized weights with group
# normalization, as published; and scaled, without any other norm.
NORMS = ("none", "batch", "layer", "group", "weight", "weight, data-based", "standardized + group", "scaled standardized")
SEQUENCE_NORMS = ("none", "layer", "weight", "weight, data-based", "scaled standardized")
RELU_GAIN = math.sqrt(2 / (1 - 1 / math.pi))  # makes the variance after ReLU one (Brock et al.)


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
        flat = (flat - flat.mean(1, keepdim=True)) / (flat.std(1, correction=0, keepdim=True) + 1e-5)
        if self.gain is not None:
            flat = self.gain * flat / math.sqrt(flat.shape[1])
        return flat.view_as(weight)


def convolutional(norm: str, inputs: Tensor, *, layers: int = 6, width: int = 16) -> nn.Module:
    """Make a convolutional network for gray images with a norm before every ReLU.

    Args:
        norm: One of ``NORMS``.
        inputs: Images that start the data-based weight normalization.
        layers: Number of 3×3 convolutions.
        width: Channels of each.

    >>> convolutional("batch", torch.zeros(2, 1, 8, 8))(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    stack: list[nn.Module] = []
    for layer in range(layers):
        convolution = nn.Conv2d(width if layer else 1, width, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        stack.append(_weighted(convolution, norm))
        stack += [_norm(norm, width), nn.ReLU()]
        if layer == layers // 2:
            stack.append(nn.AvgPool2d(2))
    model = nn.Sequential(*stack, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return start_on_data(model, inputs) if norm == "weight, data-based" else model


def _norm(name: str, width: int) -> nn.Module:
    if name == "batch":
        return nn.BatchNorm2d(width)
    if name == "layer":
        return nn.GroupNorm(1, width)
    return nn.GroupNorm(4, width) if "group" in name else nn.Identity()


def _weighted(layer: nn.Module, norm: str) -> nn.Module:
    if norm.startswith("weight"):
        return parametrizations.weight_norm(layer)
    if "standardized" in norm:
        units = layer.weight.shape[0]  # type: ignore[union-attr,index]
        change = Standardized(units, scaled="scaled" in norm)
        parametrize.register_parametrization(layer, "weight", change)
    return layer


@torch.no_grad()
def start_on_data(model: nn.Module, inputs: Tensor) -> nn.Module:
    """Set gain and bias of weight-normalized layers so that every unit has mean 0 and variance 1.

    One layer after the other, in the order of the forward pass (Salimans and Kingma, 2016).

    Args:
        model: With layers by ``torch.nn.utils.parametrizations.weight_norm``.
        inputs: The first batch.
    """

    def start(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        dims = (0, 2, 3) if output.ndim == 4 else tuple(range(output.ndim - 1))
        mean, scale = output.mean(dims), output.std(dims) + 1e-8
        gain = layer.parametrizations.weight.original0  # type: ignore[union-attr]
        gain.div_(scale.view(-1, *[1] * (gain.ndim - 1)))  # type: ignore[operator,union-attr]
        layer.bias.sub_(mean).div_(scale)  # type: ignore[union-attr,operator]
        again: Tensor = layer.forward(*given)
        return again

    wanted = [layer for layer in model.modules() if parametrize.is_parametrized(layer, "weight") and isinstance(layer, nn.Linear | nn.Conv2d)]
    hooks = [layer.register_forward_hook(start) for layer in wanted]
    model(inputs)
    for hook in hooks:
        hook.remove()
    return model


def sequential(norm: str, inputs: Tensor) -> nn.Module:
    """Make a small transformer whose layer normalization is replaced by another norm.

    Args:
        norm: One of ``SEQUENCE_NORMS``.
        inputs: Sequences that start the data-based weight normalization.

    >>> sequential("none", torch.zeros(1, 12).long())(torch.zeros(2, 12).long()).shape
    torch.Size([2, 8])
    """
    model = Transformer(SYMBOLS, SYMBOLS, LENGTH, width=32, heads=2, layers=2, causal=False, readout="mean")
    if norm == "layer":
        return model
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(parent, name, nn.Identity())
    for layer in list(model.modules()):
        if isinstance(layer, nn.Linear) and layer is not model.head:
            _weighted(layer, norm)
    return start_on_data(model, inputs) if norm == "weight, data-based" else model


def images() -> tuple[Pair, Pair]:
    """Return the 8×8 digits, divided for training and testing."""
    data = digits()
    assert data.test is not None
    return (data.inputs.view(-1, 1, 8, 8), data.targets), (data.test[0].view(-1, 1, 8, 8), data.test[1])


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


NETWORKS: dict[str, Callable[[str, Tensor], nn.Module]] = {"CNN": convolutional, "transformer": sequential}
