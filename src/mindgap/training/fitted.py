"""Fitted: what training gives back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor, nn

from mindgap.core.recipe import Recipe
from mindgap.core.subject import Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained model, its curves, where it began and why it ended.

    ``stopped`` is empty when all epochs ran; ``recipe`` is the recipe after the remedies prepared it.
    """

    model: nn.Module
    history: tuple[Mapping[str, float], ...]
    initial: Mapping[str, Tensor]
    recipe: Recipe
    seed: int
    epochs: int
    stopped: str = ""

    @property
    def diverged(self) -> bool:
        """Whether the loss left the finite numbers."""
        return self.stopped.startswith("diverged")

    def subject(self) -> Subject:
        """The trained model with its data, ready to be examined."""
        recipe = self.recipe
        names = self.model.state_dict()
        known = all(name in self.initial and self.initial[name].shape == value.shape for name, value in names.items())
        return Subject(
            self.model,
            recipe.loss,
            recipe.train,
            recipe.test,
            initial=self.initial if known else None,
            task=recipe.task,
            target=recipe.target,
            name=recipe.name,
            classes=recipe.classes,
            history=self.history,
        )
