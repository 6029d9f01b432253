"""The gradient of adversarial training: move the inputs of a batch first, then differentiate there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

FAST = 1.25  # radii of a single step from a random start, as in Wong et al. (2020)
SPREAD = 2.5  # radii that several steps together are long


class Shifted:
    """Moves the real inputs of a model uphill within a ball, while it is called by others.

    Args:
        epsilon: The L∞ radius, in standard deviations of each feature or channel of the batch.
        seed: Seed of the starts.
    """

    def __init__(self, epsilon: float, seed: int) -> None:
        self.epsilon, self.random = epsilon, torch.Generator().manual_seed(seed)
        self.leaves, self.moves, self.radii = list[Tensor](), list[Tensor](), list[Tensor]()

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """Move the inputs of all calls of the model inside."""
        handle = model.register_forward_pre_hook(self._hook, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def climb(self, share: float) -> None:
        """Step along the signs of the gradients that the last backward pass left."""
        for place, leaf in enumerate(self.leaves):
            if leaf.grad is not None:
                radius = self.radii[place]
                move = self.moves[place] + share * radius * leaf.grad.nan_to_num().sign()
                self.moves[place] = torch.clamp(move, -radius, radius)

    def _hook(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self.leaves, count = [], iter(range(len(args) + len(kwargs)))
        moved = tuple(self._moved(value, count) for value in args)
        return moved, {name: self._moved(value, count) for name, value in kwargs.items()}

    def _moved(self, value: Any, count: Iterator[int]) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        place = next(count)
        if place == len(self.moves):
            self._start(value.detach())
        leaf = (value.detach() + self.moves[place]).requires_grad_()
        self.leaves.append(leaf)
        return leaf

    def _start(self, value: Tensor) -> None:
        others = [place for place in range(value.ndim) if place != 1]
        radius = self.epsilon * value.std(others, correction=0, keepdim=True)
        drawn = 2 * torch.rand(value.shape, generator=self.random) - 1
        self.radii.append(radius)
        self.moves.append(radius * drawn.to(value))


def adversarial_gradient(
    closure: Callable[[], Tensor], model: nn.Module, *, epsilon: float, steps: int, seed: int
) -> Tensor:
    """Leave the gradient of the loss at attacked inputs in ``.grad``.

    All passes see the same random numbers, so the same dropout masks. Batch normalization and all
    other buffers move on the last pass only, which the weights learn from.

    Args:
        closure: Clears gradients and runs forward and backward; it is called ``steps + 1`` times.
        model: The model that it calls.
        epsilon: The L∞ radius, in standard deviations of the inputs.
        steps: Steps of the attack.
        seed: Seed of its start.

    Returns:
        The loss at the attacked inputs.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = model.weight.data.fill_(1.0)
    >>> inputs = torch.tensor([[-1.0], [1.0]])
    >>> def closure():
    ...     model.zero_grad()
    ...     loss = model(inputs).square().mean()
    ...     loss.backward()
    ...     return loss.detach()
    >>> round(float(adversarial_gradient(closure, model, epsilon=0.5, steps=1, seed=0)), 4)
    2.25
    """
    shifted, state = Shifted(epsilon, seed), torch.get_rng_state()
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with shifted.on(model):
        for _ in range(steps):
            closure()
            shifted.climb(FAST if steps == 1 else SPREAD / steps)
            torch.set_rng_state(state)
            with torch.no_grad():
                for buffer, kept in buffers:
                    buffer.copy_(kept)
        return closure()
