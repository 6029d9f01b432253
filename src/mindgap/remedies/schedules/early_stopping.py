"""Early stopping."""

import copy
import math

from torch import nn

from mindgap.core import Remedy, TrainingState, option


class EarlyStopping(Remedy):
    r"""Stops when the loss on held-out training data no longer falls; keeps the best epoch.

    Formula: $t^* = \arg\min_{t} \hat R_{val}(w_t), \qquad \text{stop when } t - t^* \ge
    \text{patience}$

    Reading: A small patience stops soon after the best epoch; zero never stops. The choice is made
    on a share of the training data, never on test data. So the model sees fewer samples: compare
    with a control that loses them too.

    Assumes: Held-out samples that come from the same source as the training data.

    >>> import torch
    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 20)[:, None]
    >>> noise = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 64, 1)), train=(inputs, noise), loss="mse")
    >>> fit(
    ...     recipe.replace(epochs=500, learning_rate=0.01), [EarlyStopping(patience=9)]
    ... ).epochs < 500
    True
    """

    method = ("E5",)
    cites = ("prechelt1998early",)
    strength = "patience"
    treats = frozenset({"over-fitting", "late over-fitting", "memorized noise"})
    cost = 1.1

    patience: int = option(
        5, help="epochs without a better validation loss before stopping; 0 is off", low=0
    )
    share: float = option(
        0.1, help="share of the training data to hold out if the recipe does not", above=0, below=1
    )

    @property
    def validation(self) -> float:
        """The share to hold out where the recipe holds out none."""
        return self.share

    def after_epoch(self, state: TrainingState) -> bool:
        """Remember the best weights, and stop when the patience is over."""
        assert state.validate is not None
        loss, memory = state.validate(), state.memory
        if loss < memory.get("best_loss", math.inf):
            memory.update(
                best_loss=loss,
                best_epoch=state.epoch,
                best=copy.deepcopy(state.model.state_dict()),
            )
        return bool(state.epoch - memory.get("best_epoch", 0) >= self.patience)

    def finish(self, state: TrainingState) -> nn.Module:
        """Restore the weights of the best epoch."""
        if "best" in state.memory:
            state.model.load_state_dict(state.memory["best"])
        return state.model
