"""Remedy: a change of training, written as hooks that any training loop can call."""

import dataclasses
from collections.abc import Callable, Sequence
from inspect import getattr_static
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor, nn

from mindgap.core.recipe import Recipe
from mindgap.core.spec import Spec
from mindgap.core.split import Split
from mindgap.core.subject import Subject

Symptom = Literal[
    "over-fitting",
    "late over-fitting",
    "memorized noise",
    "wrong labels",
    "hard samples",
    "sharp minimum",
    "under-fitting",
    "divergence",
    "broken evaluation",
    "unscaled inputs",
    "dead units",
    "wrong test labels",
    "shifted inputs",
    "shifted labels",
    "shortcut",
    "leak",
    "imbalance",
    "too few test samples",
    "over-confidence",
    "under-confidence",
    "noise sensitivity",
]
_DURING = ("weights", "penalty", "backward", "after_step", "after_epoch")
_HOOKS = ("prepare", *_DURING, "finish", "vectorized")


@dataclasses.dataclass(kw_only=True)
class TrainingState:
    """Where training stands, as every hook sees it.

    Args:
        model: The model that is trained.
        optimizer: Its optimizer.
        epoch: The number of the running epoch, from 1.
        step: The number of the running step, from 1, counted over all epochs.
        seed: The seed of this training run.
        memory: The remedy's own store of numbers and tensors, saved with the checkpoint.
        validate: Gives the mean loss on the held-out share of the training data. None if nothing
            is held out.
        subject: Joins a model to the training data and the loss. The test data are left out,
            because no remedy may see them. None in a loop that does not own the data.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    seed: int = 0
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)
    validate: Callable[[], float] | None = None
    subject: Callable[[nn.Module], Subject] | None = None


class Stack(Protocol):
    """The members of an ensemble that are trained at once, all in the same tensors.

    ``weights`` holds every parameter of every member in one flat tensor, and ``gradient`` its
    derivative in the same layout. ``rate`` is the learning rate of the running epoch: one number,
    or a flat tensor where it differs from member to member.
    """

    weights: Tensor
    gradient: Tensor
    rate: float | Tensor

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """View ``weights`` or ``gradient`` by parameter name, each of shape (members, …)."""

    def cut(self, flat: Tensor) -> list[Tensor]:
        """View a flat tensor as few parts of shape (members, …), in any layout.

        This is cheaper than ``named`` where only all parameters of a member matter, as for a norm.
        """

    def spread(self, values: Sequence[float]) -> float | Tensor:
        """Make a factor of a flat tensor from one number per member; a number if all are equal."""


class Remedy(Spec, abstract=True):
    """A change of training. Every hook does nothing unless an author writes it.

    ``strength`` names the field whose zero means "off": training is then bit-identical to plain
    training. ``treats`` is the set of symptoms against which a report advises the remedy. ``cost``
    is the time that training takes with it, as a multiple of plain training: a rough number that
    ranks advice.

    A loop calls ``prepare`` first. In every step it calls ``weights`` and ``penalty`` while it
    computes the loss, ``backward`` around that computation, and ``after_step`` behind the
    optimizer. It calls ``after_epoch`` after each epoch and ``finish`` at the end.

    :func:`mindgap.ensemble` trains many members at once. ``prepare`` and ``finish`` run once per
    member and need nothing more. A remedy that acts during training also writes ``vectorized``, or
    its members are trained one after the other. A forward pre-hook that ``prepare`` puts on a
    module may have an attribute ``layer``: the module without weights that does the same in front
    of it. Engines that take a model apart read it, and refuse a hook that has none.
    """

    family: ClassVar[str] = "remedy"
    strength: ClassVar[str] = ""
    treats: ClassVar[frozenset[Symptom]] = frozenset()
    cost: ClassVar[float] = 1.0

    @property
    def validation(self) -> float:
        """The share of the training data to hold out where the recipe holds out none."""
        return 0.0

    def prepare(self, recipe: Recipe, data: Split) -> Recipe:  # noqa: ARG002
        """Change the recipe once, before training.

        Args:
            recipe: Model factory, optimizer settings, sample weights and all else.
            data: The training data, without the samples that are held out.
        """
        return recipe

    def weights(self, state: TrainingState, index: Tensor) -> Tensor | None:  # noqa: ARG002
        """Weigh the samples of a batch.

        Args:
            state: Where training stands.
            index: Places of the samples in the training data.

        Returns:
            One factor per sample for its loss, or None for no change.
        """
        return None

    def penalty(self, state: TrainingState, output: Tensor, target: Tensor) -> Tensor | None:  # noqa: ARG002
        """Add a term to the loss of a batch.

        Args:
            state: Where training stands.
            output: The model's output on the batch, with its graph.
            target: The targets of the batch.

        Returns:
            One number that can be differentiated, or None for no change.
        """
        return None

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:  # noqa: ARG002
        """Leave the gradient to step along in ``.grad``, and return the loss.

        Args:
            state: Where training stands.
            closure: Clears the gradient, runs forward and backward, and returns the loss. It may
                be called several times.
        """
        return closure()

    def after_step(self, state: TrainingState) -> None:
        """Look at or change the weights after a step of the optimizer."""

    def after_epoch(self, state: TrainingState) -> bool:  # noqa: ARG002
        """Look at the model after an epoch; return true to stop training."""
        return False

    def finish(self, state: TrainingState) -> nn.Module:
        """Return the model to hand over."""
        return state.model

    @classmethod
    def vectorized(cls, members: Sequence[Self], stack: Stack) -> Callable[[], None] | None:  # noqa: ARG003
        """Make the function that does for all members at once what the hooks do for one.

        Write it if all that the remedy does during training happens between the gradient and the
        step. The function is called there, once per step, without autograd. It changes
        ``stack.weights`` or ``stack.gradient`` in place. It must not remember anything: steps in
        which a member diverged are repeated.

        Args:
            members: One remedy per member; they differ in their numbers only.
            stack: The weights and gradients of all members, the same tensors in every step.

        Returns:
            The function, or None if there is nothing to do.
        """
        return None

    @classmethod
    def hooks(cls) -> frozenset[str]:
        """Return the names of the hooks that this remedy writes itself."""
        default = vars(Remedy)
        return frozenset(name for name in _HOOKS if getattr_static(cls, name) is not default[name])

    @classmethod
    def sequential_hook(cls) -> str:
        """Return a hook that has no vectorized form, or an empty string."""
        own = cls.hooks()
        return "" if "vectorized" in own else next((hook for hook in _DURING if hook in own), "")

    @property
    def on(self) -> bool:
        """Whether the strength is not zero."""
        return bool(getattr(self, self.strength))

    def off(self) -> Self:
        """Return the same remedy at zero strength."""
        return self.replace(**{self.strength: type(getattr(self, self.strength))(0)})
