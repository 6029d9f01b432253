"""Every sample under weights of its own, many at once: stand-ins for the layers of a random model.

A bound's Monte-Carlo part wants as many independent draws of the weights as possible. Under
independent Gaussian weights, a linear layer's outputs for one sample are independent Gaussians too,
so they can be drawn instead of the weights (local reparametrization). A convolution uses one draw
at all places of a image, so its weights are drawn.

A random model that gives every sample of a batch its own draw of the weights, if its layers allow
it.

The expected error of a random model on some data, by many independent draws of its weights.
"""

import abc
import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import Inputs, Split, call, generator, integer
from mindgap.ops.models.parameters import all_at_once
from mindgap.ops.pac_bayes.hessian import bounded_cross_entropy
from mindgap.ops.pac_bayes.posterior import RandomModel

Pair = tuple[Tensor, Tensor]


class UnsuitedError(Exception):
    """A layer, or the way it is used, has no stand-in."""


class StandIn(nn.Module, abc.ABC):
    """A layer that gives every sample of a batch its own weights; it has no ``weight`` that could be misused."""

    drawn = 0  # numbers that are drawn for one sample

    def __init__(self, layer: Any, means: Pair, scales: Pair, owner: RandomModel) -> None:  # noqa: ARG002
        super().__init__()
        (self.mean, self.mean_bias), (self.scale, self.scale_bias) = means, scales
        self.draw = owner.noise
        self.gaussian = owner.kind == "gaussian"
        self.source: torch.Generator | None = None  # none: the mean weights
        self.samples = self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs with noise of every sample's own, or without any where there is no source of it."""
        self.calls += 1
        if len(inputs) != self.samples:
            raise UnsuitedError(
                "the first dimension of a layer's inputs does not count the samples"
            )
        return self.plain(inputs) if self.source is None else self.noisy(inputs)

    def noise(self, *shape: int) -> Tensor:
        """Noise of unit scale."""
        assert self.source is not None
        return self.draw(shape, self.source)

    def own_weight(self) -> Tensor:
        """A draw of the weight for every sample."""
        return self.noise(self.samples, *self.scale.shape).mul_(self.scale).add_(self.mean)

    def own_bias(self) -> Tensor:
        """A draw of the bias for every sample."""
        return (
            self.noise(self.samples, len(self.scale_bias))
            .mul_(self.scale_bias)
            .add_(self.mean_bias)
        )

    @abc.abstractmethod
    def plain(self, inputs: Tensor) -> Tensor:
        """Outputs under the mean weights."""

    @abc.abstractmethod
    def noisy(self, inputs: Tensor) -> Tensor:
        """Outputs under a draw of the weights for every sample."""


class StandInLinear(StandIn):
    """For a linear layer: (samples, features), or (samples, places, …, features) with one draw at all places."""

    def plain(self, inputs: Tensor) -> Tensor:
        """The layer itself."""
        self.drawn = 0 if self.gaussian and inputs.ndim == 2 else self.mean.numel()
        return F.linear(inputs, self.mean, self.mean_bias)

    def noisy(self, inputs: Tensor) -> Tensor:
        """Drawn outputs for Gaussian vectors, drawn weights otherwise."""
        if inputs.ndim == 2 and self.gaussian:
            variance = F.linear(inputs.square(), self.scale.square(), self.scale_bias.square())
            return self.plain(inputs) + variance.sqrt() * self.noise(*variance.shape)
        rows = inputs.reshape(self.samples, -1, inputs.shape[-1])
        outputs = torch.baddbmm(self.own_bias()[:, None], rows, self.own_weight().transpose(1, 2))
        return outputs.view(*inputs.shape[:-1], -1)


class StandInConvolution(StandIn):
    """For a two-dimensional convolution without groups: unfolded images times weights of their own."""

    def __init__(self, layer: nn.Conv2d, means: Pair, scales: Pair, owner: RandomModel) -> None:
        super().__init__(layer, means, scales, owner)
        if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise UnsuitedError("a convolution has groups or an unusual padding")
        self.geometry: dict[str, Any] = {
            name: getattr(layer, name) for name in ("stride", "padding", "dilation")
        }
        self.drawn = self.mean.numel()

    def plain(self, inputs: Tensor) -> Tensor:
        """The layer itself."""
        return F.conv2d(inputs, self.mean, self.mean_bias, **self.geometry)

    def noisy(self, inputs: Tensor) -> Tensor:
        """One draw of the weights a sample, used at all its places."""
        patches = F.unfold(inputs, tuple(self.mean.shape[2:]), **self.geometry)
        outputs = torch.baddbmm(self.own_bias()[:, :, None], self.own_weight().flatten(2), patches)
        return outputs.view(self.samples, len(self.mean), *self._size(inputs))

    def _size(self, inputs: Tensor) -> list[int]:
        sides = zip(inputs.shape[2:], self.mean.shape[2:], *self.geometry.values(), strict=True)
        return [
            (side + 2 * pad - gap * (kernel - 1) - 1) // step + 1
            for side, kernel, step, pad, gap in sides
        ]


STAND_INS: dict[type[nn.Module], type[StandIn]] = {
    nn.Linear: StandInLinear,
    nn.Conv2d: StandInConvolution,
}


def stand_in(
    layer: nn.Module, means: dict[str, Tensor], scales: dict[str, Tensor], owner: RandomModel
) -> StandIn:
    """The stand-in for a layer whose random weights have these means and scales, by their names in the layer."""
    if type(layer) not in STAND_INS or not isinstance(layer.weight, Tensor):
        raise UnsuitedError(f"{type(layer).__name__} has no stand-in")
    none = torch.zeros_like(layer.weight.detach().flatten(1)[:, 0])
    bias = layer.bias.detach() if isinstance(layer.bias, Tensor) else none
    fixed = {"weight": layer.weight.detach(), "bias": bias}
    (mean, mean_bias), (scale, scale_bias) = (
        (given.get("weight", else_weight), given.get("bias", else_bias))
        for given, else_weight, else_bias in (
            (means, fixed["weight"], fixed["bias"]),
            (scales, torch.zeros_like(fixed["weight"]), none),
        )
    )
    return STAND_INS[type(layer)](layer, (mean, mean_bias), (scale, scale_bias), owner)


DRAWN_TOGETHER = 2_000_000  # numbers drawn together: small enough for a CPU's cache
MOST = 512  # samples in one call
TRIED = 64  # samples on which the stand-ins are compared with the model


class Batched:
    """The model with stand-ins; calling it draws the weights anew for every sample of the inputs."""

    def __init__(self, model: RandomModel) -> None:
        self.network, self.layers = _swapped(model)
        self.like = model.center

    def __call__(self, inputs: Inputs, source: torch.Generator | None) -> Tensor:
        """Outputs for some inputs; without a source of noise those of the mean weights."""
        samples = len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0])
        for layer in self.layers:
            layer.source, layer.samples, layer.calls = source, samples, 0
        outputs = call(self.network, inputs, self.like)
        if any(layer.calls != 1 for layer in self.layers):
            raise UnsuitedError("a layer is not called exactly once")
        return outputs

    @property
    def chunk(self) -> int:
        """How many samples to take at once."""
        return max(
            1, min(MOST, DRAWN_TOGETHER // max(1, sum(layer.drawn for layer in self.layers)))
        )


def batched(model: RandomModel, inputs: Inputs) -> Batched | None:
    """The model with stand-ins, tried on some inputs; none if a layer has none or is used in another way.

    Tried are small sizes of the batch, so that a dimension of another meaning is not taken for the
    samples, and whether the stand-ins without noise give what the model gives, on all these inputs.
    """
    try:
        found = Batched(model)
        for size in (2, 3, TRIED):
            some = _first(inputs, size)
            wanted = model.mean_answer(some)
            with torch.no_grad():
                given = found(some, None)
            if given.shape != wanted.shape or not torch.allclose(
                given, wanted, rtol=1e-3, atol=1e-4
            ):
                return None
    except (UnsuitedError, RuntimeError, AttributeError, TypeError, ValueError, IndexError):
        return None
    return found


def _swapped(model: RandomModel) -> tuple[nn.Module, list[StandIn]]:
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        means, scales = model.named(model.means()), model.named(model.scales())
    if len(list(network.named_parameters(remove_duplicate=False))) != len(
        list(network.parameters())
    ):
        raise UnsuitedError("two layers share a weight")
    layers = list[StandIn]()
    for home in sorted({name.rpartition(".")[0] for name in means}):
        layer, start = network.get_submodule(home), f"{home}." if home else ""
        own = {name for name in means if name.rpartition(".")[0] == home}
        inner = [
            {name.removeprefix(start): given[name] for name in own} for given in (means, scales)
        ]
        layers.append(stand_in(layer, inner[0], inner[1], model))
        if not home:
            return layers[0], layers
        above, _, name = home.rpartition(".")
        setattr(network.get_submodule(above), name, layers[-1])
    return network, layers


def _first(inputs: Inputs, size: int) -> Inputs:
    if isinstance(inputs, dict):
        return {name: value[:size] for name, value in inputs.items()}
    return tuple(value[:size] for value in inputs)


EVALUATED_TOGETHER = 4_000_000  # weights of all the models that are evaluated together


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Means over ``draws`` independent numbers in [0, 1]: 0-1 error and bounded cross entropy.

    ``own_draws`` tells whether stand-ins gave every sample its own weights; else whole models were
    drawn.
    """

    error: float
    loss: float
    draws: int
    own_draws: bool


def expected_losses(
    model: RandomModel,
    split: Split,
    *,
    draws: int,
    floor: float,
    seed: int = 0,
    whole: bool = False,
) -> Drawn:
    """Estimate the mean error and the mean bounded cross entropy over the data and over the weights.

    At least ``draws`` independent numbers are averaged. Where every sample can have its own draw of
    the weights the data are passed as often as that takes; the numbers are then independent, not
    alike, which Hoeffding's inequality (1963) allows. Otherwise, and if ``whole``, each draw of a
    whole model judges an equally large group of random samples.
    """
    integer("draws", draws)
    first = split.take(torch.arange(min(TRIED, len(split))))
    fast = None if whole or len(split) < 3 else batched(model, first.inputs)
    with torch.no_grad():
        pairs = (
            _whole(model, split, draws, generator(seed))
            if fast is None
            else _own(fast, split, draws, seed)
        )
        errors, losses, count = 0.0, 0.0, 0
        for outputs, targets in pairs:
            wrong, loss = _judged(outputs, targets.to(outputs.device, torch.long), floor)
            errors, losses = (
                errors + float(wrong.double().sum()),
                losses + float(loss.double().sum()),
            )
            count += len(targets)
    group = count // draws if fast is None else 1
    return Drawn(errors / count, losses / count, count // group, fast is not None)


def _own(model: Batched, split: Split, draws: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    source = generator(seed)
    for _ in range(-(-draws // len(split))):
        for batch in split.batches(model.chunk):
            yield model(batch.inputs, source), batch.target


def _whole(
    model: RandomModel, split: Split, draws: int, source: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Draws of whole models, some at once, each on as many samples, drawn with replacement, as all others."""
    group, left = -(-len(split) // draws), draws
    size = max(1, EVALUATED_TOGETHER // max(model.center.numel(), 1))
    while left:
        models = min(size, left, 256)
        left -= models
        index = torch.randint(len(split), (models * group,), generator=source)
        batch = split.take(index)
        weights = model.draw(source, models)
        yield _answers(model, weights, batch.inputs, models).flatten(0, 1), batch.target


def _answers(model: RandomModel, weights: dict[str, Tensor], inputs: Inputs, models: int) -> Tensor:
    """Outputs (models, group, …)."""
    return all_at_once(
        model.answer, weights, _map(inputs, lambda value: value.unflatten(0, (models, -1)))
    )


def _map(inputs: Inputs, function: Callable[[Tensor], Tensor]) -> Inputs:
    if isinstance(inputs, dict):
        return {name: function(value) for name, value in inputs.items()}
    return tuple(function(value) for value in inputs)


def _judged(outputs: Tensor, targets: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """0-1 errors and bounded losses; what is not a number counts as wrong in full."""
    finite = torch.isfinite(outputs).all(1)
    loss = bounded_cross_entropy(outputs, targets, floor)
    return (outputs.argmax(1) != targets) | ~finite, torch.where(finite, loss, 1.0)
