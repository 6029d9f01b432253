"""Mean-field moments of the numbers inside a network, over draws of its weights, and their rules.

The second moments carry a graph of their own, in which autograd computes the second moments of
gradients: where a function is linear, those propagate by the transposed map of the second moments.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mindgap.ops.initialization.gaussian import (
    Function,
    gaussian_moments,
    product_moment,
    rectified_moments,
)

Apply = Callable[[Tensor, float], Tensor]
SURE = 5.0  # standard errors by which the mean of random numbers differs from zero


@dataclasses.dataclass(frozen=True)
class Moments:
    """Moments of every number of a tensor over draws of the weights.

    Args:
        mean: Expected values.
        square: Expected squares, in a graph for the squares of gradients.
        common: Expected product with the same unit in another sample.
        gaussian: Whether units are Gaussian, as sums over many of them are.
        slope: Expected squared derivative by what the last layer with weights returned.
        source: The layer that returned these numbers, or a multiple of them; empty if none did.
    """

    mean: Tensor
    square: Tensor
    common: Tensor
    gaussian: bool
    slope: float = 1.0
    source: str = ""

    @property
    def std(self) -> Tensor:
        """Standard deviations."""
        return (self.square.detach() - self.mean.square()).clamp_min(0).sqrt()


def lifted(value: Any, axis: int | None = None) -> Moments:
    """Return the moments of numbers that do not depend on the weights.

    Args:
        value: A tensor or a number.
        axis: The axis of the units, for what samples have in common.
    """
    numbers = torch.as_tensor(value).detach().double()
    common = numbers
    if axis is not None and numbers.ndim > 1:
        others = [k for k in range(numbers.ndim) if k != axis % numbers.ndim]
        common = numbers.mean(others, keepdim=True).expand_as(numbers)
    return Moments(numbers, numbers.square(), common.square(), gaussian=False)


def layered(row: Moments, apply: Apply, bias: Tensor | None) -> Moments:
    """Pass moments through a layer of independent random weights with mean zero.

    Args:
        row: What enters.
        apply: The layer with all its weights equal to their second moment, and a shift.
        bias: The biases.
    """
    shift = 0.0 if bias is None else float(bias.detach().double().square().mean())
    square = apply(row.square, shift)
    return Moments(
        mean=torch.full_like(square, clear_mean(bias)).detach(),
        square=square,
        common=apply(row.common, shift).detach(),
        gaussian=True,
    )


def activated(row: Moments, function: Function, negative: float | None = None) -> Moments:
    """Pass Gaussian moments through an elementwise function.

    Args:
        row: What enters.
        function: The function.
        negative: The slope below zero, if the function is a leaky ReLU.
    """
    first, second, slope = (
        gaussian_moments(function, row.mean, row.std)
        if negative is None
        else rectified_moments(row.mean, row.std, negative)
    )
    means = (float(part.detach().mean()) for part in (row.mean, row.square, row.common))
    shared = product_moment(lambda x: function(x + 0), *means)
    return Moments(
        mean=first.detach(),
        square=passed(row.square, second, slope),
        common=torch.full_like(first, shared).detach(),
        gaussian=False,
        slope=row.slope * float(slope.mean()),
    )


def summed(one: Moments, other: Moments, sign: float = 1.0) -> Moments:
    """Add or subtract what is uncorrelated, means aside."""
    cross = (2 * sign * one.mean * other.mean).detach()
    square = one.square + other.square + cross
    return Moments(
        mean=one.mean + sign * other.mean,
        square=square,
        common=(one.common + other.common + cross).expand_as(square).detach(),
        gaussian=one.gaussian and other.gaussian,
    )


def multiplied(one: Moments, other: Moments, **more: Any) -> Moments:
    """Multiply what is independent."""
    square = one.square * other.square
    common = (one.common * other.common).expand_as(square).detach()
    return Moments(one.mean * other.mean, square, common, **more)


@dataclasses.dataclass(frozen=True)
class Affine:
    """What a normalization multiplies by and adds.

    Args:
        gain: Mean square of the factors.
        shift: Mean square of the shifts.
        center: Mean of the shifts.
        epsilon: What is added to the variance.
    """

    gain: float
    shift: float
    center: float
    epsilon: float


def normalized(
    row: Moments, variance: Tensor, square: Tensor, affine: Affine, steeper: float = 1.0
) -> Moments:
    """Divide by a standard deviation, multiply by a gain, add a shift.

    Args:
        row: What enters.
        variance: What its root divides, in a shape that can be expanded.
        square: Second moments after the mean was subtracted.
        affine: Gain and shift.
        steeper: A further factor of gradients' second moments.
    """
    factor = (affine.gain / (variance + affine.epsilon)).expand_as(row.square)
    after = (square * factor + affine.shift).expand_as(row.square)
    # What samples have in common loses as much by the subtraction as the second moment does.
    shared = (row.common - row.square.detach()).mean() + variance.mean()
    common = float(shared.clamp_min(0) * factor.mean()) + affine.shift
    return Moments(
        mean=torch.full_like(row.mean, affine.center),
        square=passed(row.square, after, steeper * factor),
        common=torch.full_like(row.mean, common),
        gaussian=row.gaussian,
        slope=row.slope * float(factor.mean()),
    )


def clear_mean(values: Tensor | None) -> float:
    """Return the mean of numbers, or zero if random numbers around zero could have it."""
    if values is None:
        return 0.0
    numbers = values.detach().double()
    mean, square = float(numbers.mean()), float(numbers.square().mean())
    return mean if abs(mean) > SURE * (square / numbers.numel()) ** 0.5 else 0.0


def passed(square: Tensor, after: Tensor, slope: Tensor) -> Tensor:
    """Return second moments after a function, so that gradients' ones are multiplied by ``slope``.

    >>> before = torch.ones(1, requires_grad=True)
    >>> after = passed(before, torch.tensor([0.5]), torch.tensor([0.25]))
    >>> float(after.detach()), float(torch.autograd.grad(after, before)[0])
    (0.5, 0.25)
    """
    found: Tensor = _Passed.apply(square, after, slope)  # type: ignore[no-untyped-call]
    return found


class _Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Tensor, after: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return after.detach().clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None
