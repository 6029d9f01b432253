"""Weight decay."""

from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import Remedy, TrainingState, option


class WeightDecay(Remedy):
    r"""Shrinks all weights a little at every step.

    Formula: $w \leftarrow (1 - \eta\lambda) w - \eta\, u(g)$

    Reading: A large decay keeps the weights small and the fit smooth, at the cost of a higher
    training loss. Decoupled from the gradient, as in AdamW; coupled (``decoupled=False``) it adds
    the decay to the gradient, as classical L2.

    Assumes: The optimizer's parameter groups carry their learning rate as ``lr``.

    >>> WeightDecay(decay=0.01).on
    True
    """

    method = ("E5",)
    cites = ("loshchilov2019decoupled", "krogh1991simple")
    strength = "decay"
    treats = "weights that grow to fit noise"

    decay: float = option(
        1e-2, help="share of the weights removed a step, times the learning rate", low=0
    )
    decoupled: bool = option(
        True, help="shrink the weights themselves instead of adding to the gradient"
    )

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Shrink after the gradient was taken and before the step."""
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
