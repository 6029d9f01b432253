"""A penalty on the gradient of the loss by the inputs: double backpropagation."""

from torch import Tensor

from mindgap.core import TrainingState, option
from mindgap.remedies.smoothness.slope_penalty import SlopePenalty, squared_slopes


class GradientPenalty(SlopePenalty):
    r"""Penalizes the squared norm of the gradient of every sample's loss by its input.

    Formula: $\ell(f(x_i), y_i) + \lambda \lVert \nabla_x \ell(f(x_i), y_i) \rVert_2^2$

    Reading: Holds down how much a small change of an input can raise its loss. It acts least where
    the model is sure and right, because the loss is flat there; the Jacobian penalty acts
    everywhere. Zero turns it off.

    Assumes: Real inputs on one scale, and activations with a slope: where batch normalization uses
    the statistics of the batch, the slope includes what a sample does to the others.

    >>> import torch
    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> fit(recipe, [GradientPenalty(factor=0.1)]).epochs
    20
    """

    method = ("S5",)
    cites = ("drucker1992improving", "ross2018improving")
    strength = "factor"
    cost = 2.5

    factor: float = option(0.1, help="factor λ of the squared norm; 0 is off", low=0)

    def slopes(
        self,
        state: TrainingState,  # noqa: ARG002
        losses: Tensor,
        output: Tensor,  # noqa: ARG002
        inputs: list[Tensor],
    ) -> Tensor:
        """Compute the squared norm of every loss's gradient."""
        return squared_slopes(losses, inputs)
