"""Adversarial training."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Remedy, TrainingState, option

FAST = 1.25  # radii of a single step from a random start, as in Wong et al. (2020)
SPREAD = 2.5  # radii that several steps together are long


class AdversarialTraining(Remedy):
    r"""Trains on inputs that were moved, within a small box, to where the loss is larger.

    Formula: $\min_w \frac{1}{n} \sum_i \max_{\lVert \delta_i / \sigma \rVert_\infty \le \epsilon}
    \ell(f_w(x_i + \delta_i), y_i)$

    Reading: The inner maximum is approached by signed gradient steps from a random start: one step
    is the fast form, more are PGD. σ is the standard deviation in the batch: of each feature where
    inputs are rows, of each channel where they are images. So ε has no units; 0.125 is about 8/255
    of the range of natural images. Predictions hold under attacks up to ε more often, and clean
    accuracy usually falls. A training step takes one pass more per attack step. Zero turns it off.

    Assumes: Inputs that are real numbers, whose small changes do not change the target. Moved
    inputs may leave the range of the data by ε.

    >>> import torch
    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> fit(recipe, [AdversarialTraining(epsilon=0.1)]).epochs
    20
    """

    method = ("S4",)
    cites = ("madry2018towards", "wong2020fast")
    strength = "epsilon"
    treats = frozenset({"adversarial inputs", "noise sensitivity"})
    needs = frozenset({"real inputs"})
    cost = 2.1

    epsilon: float = option(
        0.125, help="largest move ε of a feature, in its standard deviations; 0 is off", low=0
    )
    steps: int = option(1, help="steps of the attack on every batch", low=1)

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Run the closure on the batch to attack it, and on what the attack made of it."""
        return adversarial_gradient(
            closure,
            state.model,
            epsilon=self.epsilon,
            steps=self.steps,
            seed=state.random(self.name),
        )


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
