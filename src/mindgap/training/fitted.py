"""Fitted: what training returns."""

import dataclasses
from collections.abc import Mapping

from torch import Tensor, nn

from mindgap.core import Recipe, Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained model, its curves, where it began and why it ended.

    Args:
        model: The trained model, in evaluation mode.
        history: One dict per epoch, with losses and errors by name.
        initial: The state dict from before training.
        recipe: The recipe after the remedies prepared it.
        seed: The seed of the run.
        epochs: How many epochs are complete.
        stopped: Why training ended early; empty if all epochs ran.
        remedies: The names of the remedies that were on.
    """

    model: nn.Module
    history: tuple[Mapping[str, float], ...]
    initial: Mapping[str, Tensor]
    recipe: Recipe
    seed: int
    epochs: int
    stopped: str = ""
    remedies: tuple[str, ...] = ()

    @property
    def diverged(self) -> bool:
        """Whether the loss became NaN or infinite."""
        return self.stopped.startswith("diverged")

    def subject(self) -> Subject:
        """Join the trained model to its data, ready to be examined."""
        recipe = self.recipe
        # Remedies change training in ways that the recipe alone does not repeat.
        repeatable = not self.remedies and not self.stopped
        names = self.model.state_dict()
        known = all(
            name in self.initial and self.initial[name].shape == value.shape
            for name, value in names.items()
        )
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
            recipe=recipe if repeatable else None,
            seed=self.seed,
        )


def training_subject(subject: Subject, model: nn.Module) -> Subject:
    """Join a model to the subject's training data and loss, without its test data."""
    return Subject(model, subject.loss, subject.train, task=subject.task, check_determinism=False)
