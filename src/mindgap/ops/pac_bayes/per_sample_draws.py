"""The expected error of a stochastic classifier, with one draw of the weights per sample.

The Monte Carlo part of a bound needs many independent draws of the weights. If the layers allow it,
every sample of a batch gets its own draw. Under independent Gaussian weights the outputs of a
linear layer for one sample are independent Gaussians too, so they are drawn instead of the weights
(local reparametrization). A convolution uses one draw at all positions of an image, so its weights
are drawn.
"""

import abc
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import Inputs, Split, call, generator, integer
from mindgap.ops.models.parameters import vmap_or_loop
from mindgap.ops.pac_bayes.hessian import bounded_cross_entropy
from mindgap.ops.pac_bayes.posterior import StochasticModel

Pair = tuple[Tensor, Tensor]
EVALUATED_TOGETHER = 4_000_000  # weights of all models that are evaluated together
DRAWN_TOGETHER = 2_000_000  # numbers drawn together: small enough for a CPU's cache
MOST = 512  # samples in one call
TRIED = 64  # samples on which the per-sample model is compared with the original


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Means over independent draws of the weights.

    Attributes:
        error: Mean 0-1 error.
        loss: Mean bounded cross entropy.
        draws: Number of independent numbers in [0, 1] that were averaged.
        own_draws: Whether every sample had its own draw; otherwise whole models were drawn.
    """

    error: float
    loss: float
    draws: int
    own_draws: bool


def expected_losses(
    model: StochasticModel,
    split: Split,
    *,
    draws: int,
    floor: float,
    seed: int = 0,
    whole: bool = False,
) -> Drawn:
    """Estimate the expected error and bounded cross entropy over the data and the weights.

    If every sample can have its own draw of the weights, the data pass as often as the number of
    draws asks for. The averaged numbers are then independent but not identically distributed, which
    Hoeffding's inequality (1963) allows. Otherwise each draw of a whole model is evaluated on an
    equally large group of random samples.

    Args:
        model: The stochastic classifier.
        split: The data.
        draws: Least number of independent draws.
        floor: Probability at which the cross entropy is cut off.
        seed: Seed of the draws.
        whole: Always draw whole models.

    >>> from mindgap.core import as_split
    >>> from mindgap.ops.pac_bayes.posterior import stochastic_model
    >>> data = as_split((torch.randn(20, 2), torch.zeros(20, dtype=torch.long)))
    >>> found = expected_losses(
    ...     stochastic_model(nn.Linear(2, 3), "gaussian", 0.1), data, draws=100, floor=1e-3
    ... )
    >>> found.draws, found.own_draws, 0 <= found.error <= 1
    (100, True, True)
    """
    integer("draws", draws)
    first = split.take(torch.arange(min(TRIED, len(split))))
    fast = None if whole or len(split) < 3 else per_sample_model(model, first.inputs)
    with torch.no_grad():
        pairs = (
            _whole(model, split, draws, generator(seed))
            if fast is None
            else _own(fast, split, draws, seed)
        )
        errors, losses, count = 0.0, 0.0, 0
        for outputs, targets in pairs:
            wrong, loss = _judged(outputs, targets.to(outputs.device, torch.long), floor)
            errors += float(wrong.double().sum())
            losses += float(loss.double().sum())
            count += len(targets)
    group = count // draws if fast is None else 1
    return Drawn(errors / count, losses / count, count // group, fast is not None)


def _own(
    model: "_PerSampleModel", split: Split, draws: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    source = generator(seed)
    for _ in range(-(-draws // len(split))):
        for batch in split.batches(model.chunk):
            yield model(batch.inputs, source), batch.target


def _whole(
    model: StochasticModel, split: Split, draws: int, source: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Draw whole models and evaluate each on a group of samples, drawn with replacement.

    All groups are of one size: every draw then has the same weight in the mean, and the draws are
    independent and identically distributed.
    """
    group, left = -(-len(split) // draws), draws
    size = max(1, EVALUATED_TOGETHER // max(model.center.numel(), 1))
    while left:
        models = min(size, left, 256)
        left -= models
        index = torch.randint(len(split), (models * group,), generator=source)
        batch = split.take(index)
        weights = model.draw(source, models)
        inputs = _grouped(batch.inputs, models)
        yield vmap_or_loop(model.outputs, weights, inputs).flatten(0, 1), batch.target


def _grouped(inputs: Inputs, models: int) -> Inputs:
    if isinstance(inputs, dict):
        return {name: value.unflatten(0, (models, -1)) for name, value in inputs.items()}
    return tuple(value.unflatten(0, (models, -1)) for value in inputs)


def _judged(outputs: Tensor, targets: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Compute 0-1 errors and bounded losses; outputs that are not finite count as wrong."""
    finite = torch.isfinite(outputs).all(1)
    loss = bounded_cross_entropy(outputs, targets, floor)
    return (outputs.argmax(1) != targets) | ~finite, torch.where(finite, loss, 1.0)


class _UnsupportedLayerError(Exception):
    """A layer, or the way it is used, does not allow one draw per sample."""


class _PerSampleModel:
    """A stochastic classifier that draws its weights separately for every sample of its inputs."""

    def __init__(self, model: StochasticModel) -> None:
        self.network, self.layers = _swapped(model)
        self.like = model.center

    def __call__(self, inputs: Inputs, source: torch.Generator | None) -> Tensor:
        """Compute the outputs; without a source of noise, those of the mean weights."""
        samples = len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0])
        for layer in self.layers:
            layer.source, layer.samples, layer.calls = source, samples, 0
        outputs = call(self.network, inputs, self.like)
        if any(layer.calls != 1 for layer in self.layers):
            raise _UnsupportedLayerError("a layer is not called exactly once")
        return outputs

    @property
    def chunk(self) -> int:
        """Number of samples to take at once."""
        drawn = max(1, sum(layer.drawn for layer in self.layers))
        return max(1, min(MOST, DRAWN_TOGETHER // drawn))


def per_sample_model(model: StochasticModel, inputs: Inputs) -> _PerSampleModel | None:
    """Build and test a per-sample model; None if a layer or its use does not allow it.

    Without noise it must give the model's outputs. Several batch sizes are tried, so that a
    dimension that has another meaning is not taken for the samples.

    Args:
        model: The stochastic classifier.
        inputs: Inputs to test it on.
    """
    try:
        found = _PerSampleModel(model)
        for size in (2, 3, TRIED):
            some = _first(inputs, size)
            wanted = model.mean_outputs(some)
            with torch.no_grad():
                given = found(some, None)
            if given.shape != wanted.shape or not torch.allclose(
                given, wanted, rtol=1e-3, atol=1e-4
            ):
                return None
    except (
        _UnsupportedLayerError,
        RuntimeError,
        AttributeError,
        TypeError,
        ValueError,
        IndexError,
    ):
        return None
    return found


def _swapped(model: StochasticModel) -> tuple[nn.Module, list["_PerSampleLayer"]]:
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        means, scales = model.named(model.means()), model.named(model.scales())
    if len(list(network.named_parameters(remove_duplicate=False))) != len(
        list(network.parameters())
    ):
        raise _UnsupportedLayerError("two layers share a weight")
    layers = list[_PerSampleLayer]()
    for home in sorted({name.rpartition(".")[0] for name in means}):
        layer, start = network.get_submodule(home), f"{home}." if home else ""
        own = {name for name in means if name.rpartition(".")[0] == home}
        inner = [
            {name.removeprefix(start): given[name] for name in own} for given in (means, scales)
        ]
        layers.append(_per_sample_layer(layer, inner[0], inner[1], model))
        if not home:
            return layers[0], layers
        above, _, name = home.rpartition(".")
        setattr(network.get_submodule(above), name, layers[-1])
    return network, layers


def _first(inputs: Inputs, size: int) -> Inputs:
    if isinstance(inputs, dict):
        return {name: value[:size] for name, value in inputs.items()}
    return tuple(value[:size] for value in inputs)


class _PerSampleLayer(nn.Module, abc.ABC):
    """A layer that gives every sample of a batch its own weights.

    It has no attribute ``weight``: a network that reads the weight of a layer directly would bypass
    the draws, and fails instead.
    """

    drawn = 0  # numbers that are drawn for one sample

    def __init__(self, layer: Any, means: Pair, scales: Pair, owner: StochasticModel) -> None:  # noqa: ARG002
        super().__init__()
        (self.mean, self.mean_bias), (self.scale, self.scale_bias) = means, scales
        self.draw = owner.noise
        self.gaussian = owner.kind == "gaussian"
        self.source: torch.Generator | None = None  # none: the mean weights
        self.samples = self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the outputs with noise per sample, or without noise if no source is set."""
        self.calls += 1
        if len(inputs) != self.samples:
            raise _UnsupportedLayerError(
                "the first dimension of a layer's inputs does not count the samples"
            )
        return self.plain(inputs) if self.source is None else self.noisy(inputs)

    def noise(self, *shape: int) -> Tensor:
        """Draw noise of unit scale."""
        assert self.source is not None
        return self.draw(shape, self.source)

    def own_weight(self) -> Tensor:
        """Draw a weight for every sample."""
        return self.noise(self.samples, *self.scale.shape).mul_(self.scale).add_(self.mean)

    def own_bias(self) -> Tensor:
        """Draw a bias for every sample."""
        noise = self.noise(self.samples, len(self.scale_bias))
        return noise.mul_(self.scale_bias).add_(self.mean_bias)

    @abc.abstractmethod
    def plain(self, inputs: Tensor) -> Tensor:
        """Compute the outputs under the mean weights."""

    @abc.abstractmethod
    def noisy(self, inputs: Tensor) -> Tensor:
        """Compute the outputs under a separate draw of the weights per sample."""


class _PerSampleLinear(_PerSampleLayer):
    """A linear layer on (samples, …, features), with one draw for all positions of a sample."""

    def plain(self, inputs: Tensor) -> Tensor:
        """Apply the layer."""
        self.drawn = 0 if self.gaussian and inputs.ndim == 2 else self.mean.numel()
        return F.linear(inputs, self.mean, self.mean_bias)

    def noisy(self, inputs: Tensor) -> Tensor:
        """Draw outputs if weights are Gaussian and inputs are vectors, else draw weights."""
        if inputs.ndim == 2 and self.gaussian:
            # A sum of independent Gaussians is Gaussian. With several positions per sample the
            # outputs share a weight and are correlated, so this holds for one position only.
            variance = F.linear(inputs.square(), self.scale.square(), self.scale_bias.square())
            return self.plain(inputs) + variance.sqrt() * self.noise(*variance.shape)
        rows = inputs.reshape(self.samples, -1, inputs.shape[-1])
        outputs = torch.baddbmm(self.own_bias()[:, None], rows, self.own_weight().transpose(1, 2))
        return outputs.view(*inputs.shape[:-1], -1)


class _PerSampleConv2d(_PerSampleLayer):
    """A 2-D convolution without groups: unfolded images times one weight per sample."""

    def __init__(self, layer: nn.Conv2d, means: Pair, scales: Pair, owner: StochasticModel) -> None:
        super().__init__(layer, means, scales, owner)
        if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise _UnsupportedLayerError("a convolution has groups or an unusual padding")
        self.geometry: dict[str, Any] = {
            name: getattr(layer, name) for name in ("stride", "padding", "dilation")
        }
        self.drawn = self.mean.numel()

    def plain(self, inputs: Tensor) -> Tensor:
        """Apply the layer."""
        return F.conv2d(inputs, self.mean, self.mean_bias, **self.geometry)

    def noisy(self, inputs: Tensor) -> Tensor:
        """Use one draw of the weights per sample at all its positions."""
        size = self._size(inputs)
        patches = self._patches(inputs, size)
        outputs = torch.baddbmm(self.own_bias()[:, :, None], self.own_weight().flatten(2), patches)
        # Pooling is several times as fast with channels last.
        return outputs.view(self.samples, -1, *size).contiguous(memory_format=torch.channels_last)

    def _patches(self, inputs: Tensor, size: list[int]) -> Tensor:
        """Copy the patch of every position: the same as ``F.unfold``, in a third of the time."""
        (down, right), (high, wide) = self.geometry["padding"], self.mean.shape[2:]
        padded = F.pad(inputs, (right, right, down, down))
        sample, channel, row, column = padded.stride()
        gaps = [
            stride * factor
            for name in ("dilation", "stride")
            for stride, factor in zip((row, column), self.geometry[name], strict=True)
        ]
        shape = (*inputs.shape[:2], high, wide, *size)
        return padded.as_strided(shape, (sample, channel, *gaps)).reshape(
            self.samples, -1, size[0] * size[1]
        )

    def _size(self, inputs: Tensor) -> list[int]:
        sides = zip(inputs.shape[2:], self.mean.shape[2:], *self.geometry.values(), strict=True)
        return [
            (side + 2 * pad - gap * (kernel - 1) - 1) // step + 1
            for side, kernel, step, pad, gap in sides
        ]


LAYERS: dict[type[nn.Module], type[_PerSampleLayer]] = {
    nn.Linear: _PerSampleLinear,
    nn.Conv2d: _PerSampleConv2d,
}


def _per_sample_layer(
    layer: nn.Module, means: dict[str, Tensor], scales: dict[str, Tensor], owner: StochasticModel
) -> _PerSampleLayer:
    """Build the per-sample layer for random weights with these means and scales, by name."""
    if type(layer) not in LAYERS or not isinstance(layer.weight, Tensor):
        raise _UnsupportedLayerError(f"{type(layer).__name__} has no per-sample form")
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
    return LAYERS[type(layer)](layer, (mean, mean_bias), (scale, scale_bias), owner)
