"""Annealing of the learning rate on a plateau."""

import math

from mindgap.core import Remedy, TrainingState, option

_BETTER = 1 - 1e-4  # as torch's ReduceLROnPlateau: less is no improvement


class PlateauAnnealing(Remedy):
    r"""Cuts the learning rate whenever the loss on held-out training data no longer falls.

    Formula: $\eta \leftarrow (1 - c)\, \eta \quad\text{after more than } p \text{ epochs without }
    \hat R_{val} < (1 - 10^{-4}) \min \hat R_{val}$

    Reading: The learning rate falls when progress stops, not at a fixed time. The decision is made
    on a share of the training data, never on test data. So the model sees fewer samples: compare
    with a control that loses them too. A cut of zero turns it off.

    Assumes: Held-out samples that come from the same source as the training data.

    >>> import torch
    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 20)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> fit(recipe, [PlateauAnnealing(cut=0.5)]).epochs
    20
    """

    method = ("E5",)
    cites = ("he2016deep",)
    strength = "cut"
    treats = frozenset({"under-fitting", "late over-fitting"})
    cost = 1.1

    cut: float = option(
        0.5, help="share of the learning rate that a plateau removes; 0 is off", low=0, below=1
    )
    patience: int = option(
        3, help="epochs without a better validation loss that are tolerated", low=0
    )
    share: float = option(
        0.1, help="share of the training data to hold out if the recipe does not", above=0, below=1
    )

    @property
    def validation(self) -> float:
        """The share to hold out where the recipe holds out none."""
        return self.share

    def rate_factor(self, state: TrainingState) -> float:
        """Return the product of all cuts so far."""
        return float(state.memory.get("factor", 1.0))

    def after_epoch(self, state: TrainingState) -> bool:
        """Count epochs without progress, and cut when there are too many."""
        assert state.validate is not None
        loss, memory = state.validate(), state.memory
        if loss < _BETTER * memory.get("best", math.inf):
            memory.update(best=loss, idle=0)
        else:
            memory["idle"] = memory.get("idle", 0) + 1
        if memory["idle"] > self.patience:
            memory.update(factor=self.rate_factor(state) * (1 - self.cut), idle=0)
        return False
