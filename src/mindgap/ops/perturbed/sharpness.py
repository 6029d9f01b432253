"""The gradient of sharpness-aware minimization: ascend first, then differentiate there."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

Ascent = Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]


def sharpness_gradient(
    closure: Callable[[], Tensor], weights: Sequence[Tensor], model: nn.Module, ascent: Ascent
) -> Tensor:
    """Leave the gradient at ``weights + ascent(weights, gradients)`` in ``.grad``.

    Both passes see the same random numbers, so the same dropout masks. Batch normalization and all
    other buffers move on the first pass only. The weights are restored bit for bit, also after an
    exception.

    Args:
        closure: Clears gradients and runs forward and backward; it is called twice.
        weights: The weights to move.
        model: The model whose buffers are kept.
        ascent: Computes the step uphill, such as :func:`steepest` or :func:`adaptive`.

    Returns:
        The loss at the weights themselves.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = model.weight.data.fill_(1.0)
    >>> def closure():
    ...     model.zero_grad()
    ...     loss = model.weight.square().sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = sharpness_gradient(closure, [model.weight], model, steepest(0.5))
    >>> float(loss.detach()), model.weight.grad
    (1.0, tensor([[3.]]))
    """
    state = _random_state()
    loss = closure()
    used = [weight for weight in weights if weight.grad is not None]
    with torch.no_grad():
        step = ascent(used, [_dense(weight) for weight in used])
    with _shifted(used, step), _unmoved(list(model.buffers())):
        _set_random_state(state)
        closure()
    return loss


def steepest(radius: float) -> Ascent:
    r"""Make SAM's ascent :math:`\rho\, g / \lVert g \rVert` over all weights.

    >>> ascent = steepest(0.5)
    >>> ascent([torch.zeros(2)], [torch.tensor([3.0, 4.0])])[0]
    tensor([0.3000, 0.4000])
    """

    def ascent(_: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        length = _length(gradients)
        return [
            gradient * (radius / length) if length else torch.zeros_like(gradient)
            for gradient in gradients
        ]

    return ascent


def adaptive(radius: float, floor: float) -> Ascent:
    r"""Make ASAM's ascent :math:`\rho\, T^2 g / \lVert T g \rVert` with :math:`T = |w| + \eta`.

    Args:
        radius: ρ.
        floor: η.

    >>> ascent = adaptive(1.0, floor=0.0)
    >>> ascent([torch.tensor([1.0, 2.0])], [torch.tensor([3.0, 2.0])])[0]
    tensor([0.6000, 1.6000])
    """

    def ascent(weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        sizes = [weight.abs() + floor for weight in weights]
        scaled = [size * gradient for size, gradient in zip(sizes, gradients, strict=True)]
        length = _length(scaled)
        pairs = zip(sizes, scaled, strict=True)
        return [
            size * part * (radius / length) if length else torch.zeros_like(part)
            for size, part in pairs
        ]

    return ascent


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
        torch.clear_autocast_cache()  # it may hold copies of the weights in half precision
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
