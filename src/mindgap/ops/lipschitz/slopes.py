"""Between which slopes each activation lies, for all inputs or on an interval."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mindgap.core import InputError

Function = Callable[..., Any]
RESERVE = 1e-8  # by which a grid of 80,001 points may miss an extreme slope
# Slopes from 0 to 1, whatever the settings.
_UNIT = ("relu", "relu6", "hardtanh", "tanh", "softplus", "logsigmoid", "celu", "clamp", "softsign")
_SIGNED = ("abs", "sin", "cos")
_CURVED = ("gelu", "silu", "mish")
_OTHERS = (
    "leaky_relu prelu elu selu sigmoid hardsigmoid hardswish tanhshrink atan erf clip clamp_min"
)
KNOWN = frozenset((*_UNIT, *_SIGNED, *_CURVED, *_OTHERS.split(), "clamp_max"))
# Functions whose slope on an interval is known from its ends.
_PIECES = ("relu", "leaky_relu", "tanh", "sigmoid", "softplus")


def slope_range(name: str, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[float, float]:
    """Return the smallest and the largest slope of an activation.

    Args:
        name: The function's name, without underscores at its ends.
        args: Its settings: what follows the input.
        given: Its settings by name.

    >>> slope_range("leaky_relu", (0.1,), {}), slope_range("sigmoid", (), {})
    ((0.1, 1.0), (0.0, 0.25))
    """
    if name in (*_UNIT, "tanhshrink", "atan", "clip", "clamp_min", "clamp_max"):
        return 0.0, 1.0
    if name in _SIGNED:
        return -1.0, 1.0
    if name in _CURVED:
        return _extremes(getattr(functional, name), given)
    return _settled(name, args, given)


def _settled(name: str, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[float, float]:
    if name in ("sigmoid", "hardsigmoid"):
        return 0.0, 0.25 if name == "sigmoid" else 1 / 6
    if name == "hardswish":
        return -0.5, 1.5
    if name == "erf":
        return 0.0, 2 / math.sqrt(math.pi)
    if name == "selu":
        return 0.0, 1.0507009873554804934193349852946 * 1.6732632423543772848170429916717
    if name == "elu":
        scale = float(given.get("alpha", args[0] if args else 1.0))
        return min(0.0, scale), max(1.0, scale)
    if name == "prelu":
        weight = given.get("weight", args[0] if args else None)
        assert isinstance(weight, Tensor)
        return min(1.0, float(weight.min())), max(1.0, float(weight.max()))
    if name == "leaky_relu":
        slope = float(given.get("negative_slope", args[0] if args else 0.01))
        return min(1.0, slope), max(1.0, slope)
    raise InputError(f"An activation must have a known range of slopes, got {name}.")


def _extremes(function: Function, given: dict[str, Any]) -> tuple[float, float]:
    """The extreme slopes of a smooth activation, which all lie near zero, on a fine grid."""
    settings = {key: value for key, value in given.items() if key == "approximate"}
    grid = torch.linspace(-4, 4, 80_001, dtype=torch.double, requires_grad=True)
    with torch.enable_grad():
        (slopes,) = torch.autograd.grad(function(grid, **settings).sum(), grid)
    return float(slopes.min()) - RESERVE, float(slopes.max()) + RESERVE


def slopes_between(
    name: str, function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return the extreme slopes on intervals; None if only the range for all inputs is known.

    Args:
        name: The function's name.
        function: The activation.
        low: Lower ends.
        high: Upper ends.

    >>> ends = torch.tensor([-2.0, 1.0, -1.0]), torch.tensor([-1.0, 2.0, 1.0])
    >>> [part.tolist() for part in slopes_between("relu", torch.relu, *ends)]
    [[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    """
    if name not in _PIECES:
        return None
    ends = _slope(function, low), _slope(function, high)
    least, most = torch.minimum(*ends), torch.maximum(*ends)
    if name in ("tanh", "sigmoid"):  # steepest at zero
        most = torch.where((low < 0) & (high > 0), _slope(function, torch.zeros_like(low)), most)
    return least, most


def _slope(function: Callable[[Tensor], Tensor], places: Tensor) -> Tensor:
    with torch.enable_grad():
        given = places.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(function(given).sum(), given)
    return found
