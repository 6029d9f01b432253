"""Remedy: a change of training, written as hooks that any training loop can call."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from mindgap.core.recipe import Recipe
from mindgap.core.spec import Spec
from mindgap.core.split import Split
from mindgap.core.subject import Subject


@dataclasses.dataclass(kw_only=True)
class TrainingState:
    """Where training stands, as every hook sees it.

    ``memory`` is the remedy's own store: numbers and tensors, saved with the checkpoint.
    ``validate`` gives the mean loss on the held-out share of the training data, ``subject`` joins a
    model to the training data and the loss (without the test data, which no remedy may see).
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    seed: int = 0
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)
    validate: Callable[[], float] | None = None
    subject: Callable[[nn.Module], Subject] | None = None


class Remedy(Spec, abstract=True):
    """A change of training. Every hook does nothing unless an author writes it.

    ``strength`` names the field whose zero means "off": training is then bit-identical to plain
    training. ``treats`` says in a few words what it is against.
    """

    family: ClassVar[str] = "remedy"
    strength: ClassVar[str] = ""
    treats: ClassVar[str] = ""

    @property
    def validation(self) -> float:
        """The share of the training data to hold out for this remedy where the recipe holds out none."""
        return 0.0

    def prepare(self, recipe: Recipe, data: Split) -> Recipe:  # noqa: ARG002
        """Change the recipe (model factory, optimizer settings, sample weights) once, before training."""
        return recipe

    def weights(self, state: TrainingState, index: Tensor) -> Tensor | None:  # noqa: ARG002
        """Weights of the samples of this batch."""
        return None

    def penalty(self, state: TrainingState, output: Tensor, target: Tensor) -> Tensor | None:  # noqa: ARG002
        """A term added to the loss of this batch."""
        return None

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:  # noqa: ARG002
        """Leave the gradient to step along in ``.grad``; ``closure`` runs forward and backward and returns the loss."""
        return closure()

    def after_step(self, state: TrainingState) -> None:
        """Look at or change the weights after a step."""

    def after_epoch(self, state: TrainingState) -> bool:  # noqa: ARG002
        """Look at the model after an epoch; true stops training."""
        return False

    def finish(self, state: TrainingState) -> nn.Module:
        """The model to hand over."""
        return state.model

    @property
    def on(self) -> bool:
        """Whether the strength is not zero."""
        return bool(getattr(self, self.strength))

    def off(self) -> Self:
        """The same remedy at zero strength."""
        return self.replace(**{self.strength: type(getattr(self, self.strength))(0)})
