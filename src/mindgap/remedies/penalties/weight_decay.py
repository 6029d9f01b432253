"""Weight decay."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from mindgap.core import Remedy, Stack, TrainingState, option


class WeightDecay(Remedy):
    r"""Shrinks all weights a little at every step.

    Formula: $w \leftarrow (1 - \eta\lambda) w - \eta\, u(g)$

    Reading: A large decay keeps the weights small and the fit smooth, at the cost of a higher
    training loss. The decay is decoupled from the gradient, as in AdamW. With
    ``decoupled=False`` it is added to the gradient, as classical L2 regularization.

    Assumes: The optimizer's parameter groups carry their learning rate as ``lr``.

    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> plain, decayed = fit(recipe).model, fit(recipe, [WeightDecay(decay=10.0)]).model
    >>> vector = torch.nn.utils.parameters_to_vector
    >>> bool(vector(decayed.parameters()).norm() < vector(plain.parameters()).norm())
    True
    """

    method = ("E5",)
    cites = ("loshchilov2019decoupled", "krogh1991simple")
    strength = "decay"
    treats = frozenset({"over-fitting", "memorized noise"})

    decay: float = option(
        1e-2, help="share of the weights removed per step, times the learning rate", low=0
    )
    decoupled: bool = option(
        True, help="shrink the weights themselves instead of adding to the gradient"
    )

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Shrink between the gradient and the step."""
        loss = closure()
        with torch.no_grad():
            for group in state.optimizer.param_groups:
                for weight in group["params"]:
                    if weight.grad is None:
                        continue
                    if self.decoupled:
                        weight.mul_(1 - group["lr"] * self.decay)
                    else:
                        weight.grad.add_(weight, alpha=self.decay)
        return loss

    @classmethod
    def vectorized(cls, members: Sequence[Self], stack: Stack) -> Callable[[], None]:
        """Shrink every member's weights, or change its gradient, by its own decay."""
        decay, decoupled = stack.spread([own.decay for own in members]), members[0].decoupled

        def shrink() -> None:
            if decoupled:
                stack.weights.mul_(1 - stack.rate * decay)
            else:
                stack.gradient.add_(stack.weights * decay)

        return shrink
