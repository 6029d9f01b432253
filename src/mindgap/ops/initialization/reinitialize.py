"""Give a copy of a network new initial weights, so that variance stays constant."""

import collections
import dataclasses
import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mindgap.core import Inputs, copied, implements, validated
from mindgap.core.purity import preserved, seeded
from mindgap.ops.initialization.following import Following, Seen
from mindgap.ops.initialization.propagation import as_in_training, followed
from mindgap.ops.initialization.schemes import Fan, Scheme, SchemeName, drawn, weight_variance

LAYERS = (nn.Linear, nn.modules.conv._ConvNd)
NAMED = 8  # weights in a notice


class KeptNotice(UserWarning):
    """Says which weights kept their values, because no rule is known for them."""


@implements(
    "S2",
    cites=(
        "he2015delving",
        "glorot2010understanding",
        "saxe2014exact",
        "mishkin2016all",
        "le2015simple",
    ),
)
@validated
def reinitialized(
    model: nn.Module,
    inputs: Tensor | Inputs,
    *,
    scheme: SchemeName = "kaiming-normal",
    fan: Fan = "in",
    gain: float | None = None,
    seed: int = 0,
) -> nn.Module:
    r"""Return a copy of a model with new initial weights, so that variance stays constant.

    Formula: $\sigma_l^2 = \frac{1}{n_{l-1} m_{l-1}}, \quad m_{l-1} = E\,\phi(z)^2$, and
    $\frac{1}{n_l s_{l-1}}, \; s_{l-1} = E\,\phi'(z)^2$ with fan out

    Reading: One pass follows the batch through the copy. Every layer is drawn so that what leaves it
    has variance one, whatever activation, sum or padding came before. In residual networks, the last
    layer of each of k branches gets variance 1/k, so that their sum stays below two.

    Assumes: Linear and convolutional layers as modules. Layers that are called several times, as in
    recurrent networks, get gain 1. Biases become zero; normalization layers, embeddings and others
    their default. With a gain of your own, it alone decides.

    Args:
        model: Any module. It is not changed.
        inputs: A batch: one tensor, a tuple of them, or a dict.
        scheme: ``"kaiming-normal"``, ``"kaiming-uniform"``, ``"xavier-normal"``,
            ``"xavier-uniform"``, ``"orthogonal"``, ``"lsuv"`` (orthogonal, then divided by the
            standard deviation that the batch shows) or ``"identity"`` (for the square weights of
            recurrent layers; Kaiming for others).
        fan: ``"in"`` keeps the variance of activations, ``"out"`` that of gradients; for Kaiming.
        gain: The factor of the weights, as in ``torch.nn.init``; by default it follows from the
            pass.
        seed: Of the draws.

    >>> net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    >>> fresh = reinitialized(net, torch.randn(32, 64), scheme="orthogonal")
    >>> fresh is net, bool(fresh[0].bias.any())
    (False, False)
    """
    fresh, kept = redrawn(model, inputs, Scheme(scheme, fan, gain), seed)
    if kept:
        warnings.warn(kept_notice(kept), KeptNotice, stacklevel=3)
    return fresh


def kept_notice(kept: Sequence[str]) -> str:
    """Say which weights keep their values.

    Args:
        kept: Their names.

    >>> kept_notice(["scale"])
    'These weights keep their values: scale. Set them yourself.'
    """
    more = f" and {len(kept) - NAMED} more" if len(kept) > NAMED else ""
    return f"These weights keep their values: {', '.join(kept[:NAMED])}{more}. Set them yourself."


def redrawn(
    model: nn.Module, inputs: Tensor | Inputs, how: Scheme, seed: int
) -> tuple[nn.Module, list[str]]:
    """Return the copy that :func:`reinitialized` makes, and the names of weights without a rule.

    Args:
        model: Any module. It is not changed.
        inputs: A batch.
        how: The scheme.
        seed: Of the draws.

    >>> fresh, kept = redrawn(nn.Linear(2, 2), torch.eye(2), Scheme("orthogonal"), seed=0)
    >>> kept, bool(fresh.bias.any())
    ([], False)
    """
    fresh, source = copied(model), torch.Generator().manual_seed(seed)
    with seeded(seed):
        kept = list(_reset_others(fresh, how, source))
    with preserved(fresh, seed=seed, weights=False), torch.no_grad():
        as_in_training(fresh)
        plan = _planned(fresh, inputs)
        for name, layer in plan.layers.items():
            _assign(layer, _first_draw(layer, how, plan.calls[name] > 1, source))
        if how.gain is None:
            _scale(fresh, inputs, how, plan)
    return fresh, kept


@dataclasses.dataclass(frozen=True)
class _Plan:
    """Layers by name, how often each is called, and the variance that each should return."""

    layers: dict[str, nn.Module]
    calls: collections.Counter[str]
    targets: dict[str, float]


def _planned(model: nn.Module, inputs: Tensor | Inputs) -> _Plan:
    layers: dict[str, nn.Module] = {
        name: part for name, part in model.named_modules() if isinstance(part, LAYERS)
    }
    mode = Following({}, {})
    followed(model, inputs, mode)
    calls = collections.Counter(row.name for row in mode.layers)
    targets = dict[str, float]()
    branches = [both for both in mode.sums if sum(map(bool, both)) == 1]
    for both in mode.sums:
        share = 1 / len(branches) if both in branches else 0.5
        targets |= {name: share for name in both if name in layers}
    return _Plan(layers, calls, targets)


def _first_draw(layer: Any, how: Scheme, shared: bool, source: torch.Generator) -> Tensor:
    """Draw weights that keep the variance of unit inputs, or with the gain that was given."""
    shape = tuple(layer.weight.shape)
    if how.name == "identity" and shared and len(shape) == 2 and shape[0] == shape[1]:
        return torch.eye(shape[0]) * (how.gain or 1.0)
    fan_in, fan_out = fans(layer)
    return drawn(how.shape, shape, weight_variance(how, fan_in, fan_out), source)


def fans(layer: Any) -> tuple[int, int]:
    """Return how many inputs a unit has, and how many units an input reaches.

    Args:
        layer: A linear layer or a convolution.

    >>> fans(nn.Conv2d(4, 8, 3)), fans(nn.ConvTranspose2d(4, 8, 3)), fans(nn.Linear(2, 5))
    ((36, 72), (36, 72), (2, 5))
    """
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    taps = math.prod(layer.kernel_size)
    return layer.in_channels // layer.groups * taps, layer.out_channels // layer.groups * taps


def _scale(model: nn.Module, inputs: Tensor | Inputs, how: Scheme, plan: _Plan) -> None:
    """Scale one layer after the other, in the order of a pass."""
    mode = Following({}, {})

    def scale(name: str, layer: Any, given: Any, named: Any, output: Tensor) -> Tensor:
        seen, size = mode.layers[-1], float(layer.weight.double().square().mean())
        after = _after(how, seen, output)
        if not 0 < after < math.inf or not size:
            return output
        entering = mode.moments((*given, *named.values())[0])
        slope = 1.0 if entering is None else entering.slope
        wanted = how.condition(after / size, fans(layer)[1] * slope)
        _assign(layer, layer.weight * math.sqrt(wanted * plan.targets.get(name, 1.0) / size))
        again: Tensor = layer.forward(*given, **named)
        return again

    for name, layer in plan.layers.items():
        if plan.calls[name] == 1:
            hook = functools.partial(scale, name)
            layer.register_forward_hook(hook, with_kwargs=True)
    followed(model, inputs, mode)


def _after(how: Scheme, seen: Seen, output: Tensor) -> float:
    """Return the variance of what leaves a layer: measured for LSUV, else predicted if possible."""
    if how.name == "lsuv":
        return float(output.double().var(correction=0))
    return seen.forward if seen.moments is None else float(seen.moments.square.mean())


@torch.no_grad()
def _assign(layer: Any, weight: Tensor) -> None:
    """Write the weights, through a parametrization if there is one, and zero the biases."""
    value = weight.to(layer.weight)
    if parametrize.is_parametrized(layer, "weight"):
        layer.weight = value
    else:
        layer.weight.copy_(value)
    if layer.bias is not None:
        layer.bias.zero_()


@torch.no_grad()
def _reset_others(model: nn.Module, scheme: Scheme, source: torch.Generator) -> Iterator[str]:
    """Reset what is no linear or convolutional layer; yield the names of weights without a rule."""
    for name, part in model.named_modules():
        own = [f"{name}.{key}".lstrip(".") for key, _ in part.named_parameters(recurse=False)]
        reset = getattr(part, "reset_parameters", getattr(part, "_reset_parameters", None))
        if not own or isinstance(part, LAYERS) or "parametrizations" in name:
            continue
        if isinstance(part, nn.RNNBase):
            _reset_recurrent(part, scheme, source)
        elif callable(reset):
            reset()
        else:
            yield from own


def _reset_recurrent(part: nn.RNNBase, scheme: Scheme, source: torch.Generator) -> None:
    """Draw each gate's matrices on their own: orthogonal, or identity, between states."""
    for name, weight in part.named_parameters(recurse=False):
        if weight.ndim == 1:
            weight.zero_()
            continue
        for gate in weight.split(part.hidden_size):
            rows, columns = gate.shape
            if "hh" in name and scheme.name == "identity" and rows == columns:
                gate.copy_(torch.eye(rows))
            elif "hh" in name:
                gate.copy_(drawn("orthogonal", (rows, columns), 1 / max(rows, columns), source))
            else:
                gate.copy_(drawn("normal", (rows, columns), 1 / columns, source))
