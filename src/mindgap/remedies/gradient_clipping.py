"""Gradient clipping."""

from collections.abc import Callable

from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from mindgap.core import Remedy, TrainingState, option


class GradientClipping(Remedy):
    r"""Shortens a gradient that is longer than a limit.

    Formula: $g \leftarrow g \cdot \min\left(1, \frac{c}{\lVert g \rVert_2}\right)$

    Reading: A small limit acts at every step and makes the step length constant; a large one acts
    only on the rare explosion. Zero turns it off.

    Assumes: Nothing.

    >>> GradientClipping(max_norm=0.0).on
    False
    """

    method = ("S1",)
    cites = ("pascanu2013difficulty",)
    strength = "max_norm"
    treats = "exploding gradients"

    max_norm: float = option(
        1.0, help="largest norm of the gradient over all weights; 0 is off", low=0
    )

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Clip what the closure left."""
        loss = closure()
        weights = [weight for group in state.optimizer.param_groups for weight in group["params"]]
        clip_grad_norm_(weights, self.max_norm)
        return loss
