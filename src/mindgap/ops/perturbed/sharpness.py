"""The gradient of sharpness-aware minimization: go uphill first, then leave the gradient from there in ``.grad``."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

Climb = Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]


def sharpness_gradient(
    closure: Callable[[], Tensor], weights: Sequence[Tensor], model: nn.Module, climb: Climb
) -> Tensor:
    """Leave the gradient at ``weights + climb(weights, gradients)``; return the loss at the weights themselves.

    ``closure`` clears gradients and runs forward and backward; it runs twice, with the same random
    numbers (so the same dropout masks), which end where one pass leaves them. Batch normalization
    and all other buffers move on the first pass only. Weights come back bit for bit, also after an
    exception.
    """
    numbers = _random_state()
    loss = closure()
    used = [weight for weight in weights if weight.grad is not None]
    with torch.no_grad():
        step = climb(used, [_dense(weight) for weight in used])
    with _shifted(used, step), _unmoved(list(model.buffers())):
        _set_random_state(numbers)
        closure()
    return loss


def steepest(radius: float) -> Climb:
    r"""SAM's ascent :math:`\rho\, g / \lVert g \rVert` over all weights; nothing where the gradient is zero."""

    def climb(_: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        length = _length(gradients)
        return [
            gradient * (radius / length) if length else torch.zeros_like(gradient)
            for gradient in gradients
        ]

    return climb


def adaptive(radius: float, floor: float) -> Climb:
    r"""ASAM's ascent :math:`\rho\, T^2 g / \lVert T g \rVert` with :math:`T = |w| + \eta`, weight by weight."""

    def climb(weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        sizes = [weight.abs() + floor for weight in weights]
        scaled = [size * gradient for size, gradient in zip(sizes, gradients, strict=True)]
        length = _length(scaled)
        pairs = zip(sizes, scaled, strict=True)
        return [
            size * part * (radius / length) if length else torch.zeros_like(part)
            for size, part in pairs
        ]

    return climb


def _length(parts: Sequence[Tensor]) -> float:
    return math.sqrt(math.fsum(float(torch.linalg.vector_norm(part)) ** 2 for part in parts))


def _dense(weight: Tensor) -> Tensor:
    gradient = weight.grad
    assert gradient is not None
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


@contextlib.contextmanager
def _shifted(weights: Sequence[Tensor], step: Sequence[Tensor]) -> Iterator[None]:
    kept = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight, part in zip(weights, step, strict=True):
                weight.add_(part)
        torch.clear_autocast_cache()
        yield
    finally:
        with torch.no_grad():
            for weight, old in zip(weights, kept, strict=True):
                weight.copy_(old)
        torch.clear_autocast_cache()


@contextlib.contextmanager
def _unmoved(buffers: Sequence[Tensor]) -> Iterator[None]:
    kept = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, old in zip(buffers, kept, strict=True):
                buffer.copy_(old)


def _random_state() -> tuple[Tensor, list[Tensor]]:
    return (
        torch.get_rng_state(),
        torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    )


def _set_random_state(state: tuple[Tensor, list[Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])
