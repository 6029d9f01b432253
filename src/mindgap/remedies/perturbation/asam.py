"""Adaptive sharpness-aware minimization."""

from collections.abc import Callable

from torch import Tensor

from mindgap.core import Remedy, TrainingState, option
from mindgap.ops.perturbed.sharpness import adaptive, sharpness_gradient


class ASAM(Remedy):
    r"""Sharpness-aware minimization in a ball that is measured in units of each weight's size.

    Formula: $w_{t+1} = \mathrm{OPT}\left(w_t, \nabla \hat L(w_t + e_t)\right), \qquad e_t = \rho
    \frac{T^2 \nabla \hat L(w_t)}{\lVert T \nabla \hat L(w_t) \rVert_2}, \qquad T = |w_t| + \eta$

    Reading: As sam, but large weights may move further than small ones. So a rescaling of layers
    that leaves the network's function alone hardly changes the sharpness. This holds for biases
    too; the authors' own code leaves biases in plain units. Each step takes two forward and
    backward passes; batch normalization updates its statistics on the first one only. Zero turns
    it off.

    Assumes: Nothing.

    >>> import torch
    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> fit(recipe, [ASAM(radius=0.5)]).epochs
    20
    """

    method = ("P7",)
    cites = ("kwon2021asam",)
    strength = "radius"
    treats = frozenset({"over-fitting", "sharp minimum"})
    cost = 2.1

    radius: float = option(0.5, help="distance ρ uphill, in units of the weights; 0 is off", low=0)
    floor: float = option(0.01, help="size η added to that of every weight", low=0)

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Run the closure, go uphill, and run it a second time."""
        weights = [weight for group in state.optimizer.param_groups for weight in group["params"]]
        return sharpness_gradient(closure, weights, state.model, adaptive(self.radius, self.floor))
