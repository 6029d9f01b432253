"""Gradient clipping."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from mindgap.core import Remedy, Stack, TrainingState, option

_TINY = 1e-6  # what ``clip_grad_norm_`` adds to a norm before it divides by it


class GradientClipping(Remedy):
    r"""Scales a gradient down to a limit if its norm is larger.

    Formula: $g \leftarrow g \cdot \min\left(1, \frac{c}{\lVert g \rVert_2}\right)$

    Reading: A small limit acts at every step and makes the step length constant. A large one acts
    only where the gradient explodes. Zero turns it off.

    Assumes: Nothing.

    >>> import torch
    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, 1e9 * inputs), loss="mse")
    >>> clipped = fit(recipe.replace(optimizer="sgd"), [GradientClipping(max_norm=1.0)])
    >>> fit(recipe.replace(optimizer="sgd")).diverged, clipped.diverged
    (True, False)
    """

    method = ("S1",)
    cites = ("pascanu2013difficulty",)
    strength = "max_norm"
    treats = frozenset({"divergence"})
    cost = 1.1

    max_norm: float = option(
        1.0, help="largest norm of the gradient over all weights; 0 is off", low=0
    )

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Clip the gradient that the closure left."""
        loss = closure()
        weights = [weight for group in state.optimizer.param_groups for weight in group["params"]]
        clip_grad_norm_(weights, self.max_norm)
        return loss

    @classmethod
    def vectorized(cls, members: Sequence[Self], stack: Stack) -> Callable[[], None]:
        """Clip every member's gradient at its own limit."""
        limits = torch.tensor([own.max_norm for own in members], dtype=torch.float64)
        limits, parts = limits.to(stack.weights), stack.cut(stack.gradient)

        def clip() -> None:
            norms = torch.stack([part.flatten(1).norm(dim=1) for part in parts]).norm(dim=0)
            factors = (limits / (norms + _TINY)).clamp_(max=1)
            for part in parts:
                part.mul_(factors.view(-1, *[1] * (part.ndim - 1)))

        return clip
