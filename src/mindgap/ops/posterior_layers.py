"""Every sample under weights of its own, many at once: stand-ins for the layers of a random model.

A bound's Monte-Carlo part wants as many independent draws of the weights as possible. Under independent Gaussian
weights, a linear layer's outputs for one sample are independent Gaussians too, so they can be drawn instead of the
weights (local reparametrisation). A convolution uses one draw at all places of a picture, so its weights are drawn.
"""

from __future__ import annotations

import abc
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.ops.posterior import RandomModel

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
            raise UnsuitedError("the first dimension of a layer's inputs does not count the samples")
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
        return self.noise(self.samples, len(self.scale_bias)).mul_(self.scale_bias).add_(self.mean_bias)

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
    """For a two-dimensional convolution without groups: unfolded pictures times weights of their own."""

    def __init__(self, layer: nn.Conv2d, means: Pair, scales: Pair, owner: RandomModel) -> None:
        super().__init__(layer, means, scales, owner)
        if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise UnsuitedError("a convolution has groups or an unusual padding")
        self.geometry: dict[str, Any] = {name: getattr(layer, name) for name in ("stride", "padding", "dilation")}
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
        return [(side + 2 * pad - gap * (kernel - 1) - 1) // step + 1 for side, kernel, step, pad, gap in sides]


STAND_INS: dict[type[nn.Module], type[StandIn]] = {nn.Linear: StandInLinear, nn.Conv2d: StandInConvolution}


def stand_in(layer: nn.Module, means: dict[str, Tensor], scales: dict[str, Tensor], owner: RandomModel) -> StandIn:
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
