"""Adversarial training."""

from collections.abc import Callable

from torch import Tensor

from mindgap.core import Remedy, TrainingState, option
from mindgap.ops.attacks.training import adversarial_gradient


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
