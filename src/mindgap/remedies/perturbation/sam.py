"""Sharpness-aware minimization."""

from collections.abc import Callable

from torch import Tensor

from mindgap.core import Remedy, TrainingState, option
from mindgap.ops.perturbed.sharpness import sharpness_gradient, steepest


class SAM(Remedy):
    r"""Steps along the gradient at the worst weights in a ball around the current ones.

    Formula: $w_{t+1} = \mathrm{OPT}\left(w_t, \nabla \hat L(w_t + e_t)\right), \qquad
    e_t = \rho \frac{\nabla \hat L(w_t)}{\lVert \nabla \hat L(w_t) \rVert_2}$

    Reading: The worst weights are those straight uphill at the distance ρ, where a linear loss is
    largest. Each step takes two forward and backward passes, on the same batch with the same
    dropout masks; batch normalization updates its statistics on the first one only. Zero turns it
    off.

    Assumes: Nothing. ρ does not follow a rescaling of layers that leaves the network's function
    alone (see asam).

    >>> import torch
    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> fit(recipe, [SAM(radius=0.05)]).epochs
    20
    """

    method = ("P7",)
    cites = ("foret2021sharpness",)
    strength = "radius"
    treats = frozenset({"over-fitting", "sharp minimum"})
    cost = 2.0

    radius: float = option(0.05, help="distance ρ uphill; 0 is off", low=0)

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Run the closure, go uphill, and run it a second time."""
        weights = [weight for group in state.optimizer.param_groups for weight in group["params"]]
        return sharpness_gradient(closure, weights, state.model, steepest(self.radius))
