"""A penalty on the Jacobian of the outputs by the inputs."""

import torch
from torch import Tensor

from mindgap.core import TrainingState, option
from mindgap.remedies.smoothness.slope_penalty import SlopePenalty, squared_slopes


class JacobianPenalty(SlopePenalty):
    r"""Penalizes the squared Frobenius norm of the Jacobian of outputs by inputs.

    Formula: $\ell(f(x_i), y_i) + \lambda \lVert J_f(x_i) \rVert_F^2, \qquad \lVert J \rVert_F^2 =
    \frac{c}{m} \, \mathbb E \sum_{j=1}^{m} \lVert v_j^\top J \rVert_2^2$

    Reading: Holds down how fast any of the c outputs changes with the input, whether or not that
    raises the loss. The m directions v are orthonormal and drawn at random for every sample and
    step. One of them is an unbiased estimate of the norm, and as many as outputs are the norm itself.
    Every direction takes one pass more. Zero turns it off.

    Assumes: Real inputs on one scale, and activations with a slope: where batch normalization uses
    the statistics of the batch, the slope includes what a sample does to the others.

    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 8, 1)), train=(inputs, inputs), loss="mse")
    >>> flat = fit(recipe.replace(epochs=200), [JacobianPenalty(factor=1.0)]).model
    >>> bool((flat(inputs[-1:]) - flat(inputs[:1])).abs() < 1.2)
    True
    """

    method = ("S5",)
    cites = ("hoffman2019robust", "sokolic2017robust")
    strength = "factor"
    cost = 2.5

    factor: float = option(0.01, help="factor λ of the squared norm; 0 is off", low=0)
    projections: int = option(
        1, help="random directions m of the outputs, per sample and step", low=1
    )

    def slopes(
        self,
        state: TrainingState,
        losses: Tensor,  # noqa: ARG002
        output: Tensor,
        inputs: list[Tensor],
    ) -> Tensor:
        """Estimate the squared norm of every sample's Jacobian."""
        rows = output.flatten(1) if output.ndim > 1 else output[:, None]
        directions = self._directions(state, rows)
        sizes = [squared_slopes((rows * one).sum(1), inputs) for one in directions.unbind(2)]
        return torch.stack(sizes).mean(0) * rows.shape[1]

    def _directions(self, state: TrainingState, rows: Tensor) -> Tensor:
        """Draw orthonormal columns for every sample, of shape (samples, outputs, directions)."""
        random = torch.Generator().manual_seed(state.random(self.name))
        count = min(self.projections, rows.shape[1])
        drawn = torch.randn(*rows.shape, count, generator=random, dtype=torch.float64)
        orthonormal: Tensor = torch.linalg.qr(drawn).Q
        return orthonormal.to(rows)
