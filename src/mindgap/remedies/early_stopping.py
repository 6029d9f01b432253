"""Early stopping."""

from __future__ import annotations

import copy
import math

from torch import nn

from mindgap.core.remedy import Moment, Remedy
from mindgap.core.spec import option


class EarlyStopping(Remedy):
    r"""Stops when the loss on held-out train data no longer falls, and goes back to the best epoch.

    Formula: $t^* = \arg\min_{t} \hat R_{val}(w_t), \qquad \text{stop when } t - t^* \ge \text{patience}$

    Reading: A small patience stops at the first bad epoch; zero never stops. The choice is made on a share of the
    train data, never on test data, so the model sees fewer samples: compare with a control that loses them too.

    Assumes: Held-out samples that come from the same source as the train data.

    >>> EarlyStopping(patience=3).validation
    0.1
    """

    method = ("E5",)
    cites = ("prechelt1998early",)
    strength = "patience"
    treats = "training on after the useful part is learnt"

    patience: int = option(5, help="epochs without a better validation loss before stopping; 0 is off", low=0)
    share: float = option(0.1, help="share of the train data to hold out if the recipe does not", above=0, below=1)

    @property
    def validation(self) -> float:
        """Held out where the recipe holds out none."""
        return self.share

    def after_epoch(self, moment: Moment) -> bool:
        """Remember the best weights; say when patience is over."""
        assert moment.validate is not None
        loss, memory = moment.validate(), moment.memory
        if loss < memory.get("best_loss", math.inf):
            memory.update(best_loss=loss, best_epoch=moment.epoch, best=copy.deepcopy(moment.model.state_dict()))
        return bool(moment.epoch - memory.get("best_epoch", 0) >= self.patience)

    def finish(self, moment: Moment) -> nn.Module:
        """Go back to the best epoch."""
        if "best" in moment.memory:
            moment.model.load_state_dict(moment.memory["best"])
        return moment.model
