"""Remedy: a change of training, written as hooks that any training loop can call."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from inspect import getattr_static
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor, nn

from mindgap.core.calls import values
from mindgap.core.errors import InputError
from mindgap.core.loss import Task
from mindgap.core.recipe import Recipe
from mindgap.core.spec import Spec
from mindgap.core.split import Inputs, Split
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
    "adversarial inputs",
]
RemedyNeed = Literal["classification", "images", "real inputs", "training data"]
Losses = Callable[[Tensor, Tensor], Tensor]

# Hooks that an ensemble calls as they are, because they depend on their arguments and on seed,
# epoch and step alone, and those for which it needs a form of their own.
_PURE = ("rate_factor", "inputs", "losses", "penalty")
_DURING = ("order", "weights", "backward", "after_step", "after_epoch")
_HOOKS = ("prepare", *_PURE, *_DURING, "finish", "vectorized", "vectorized_epoch")
_IMAGE_DIMENSIONS = 4


@dataclasses.dataclass(kw_only=True)
class TrainingState:
    """Where training stands, as every hook sees it.

    Args:
        model: The model that is trained.
        optimizer: Its optimizer.
        epoch: The number of the running epoch, from 1.
        step: The number of the running step, from 1, counted over all epochs.
        epochs: How many epochs are planned; 0 if the loop does not know.
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
    epochs: int = 0
    seed: int = 0
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)
    validate: Callable[[], float] | None = None
    subject: Callable[[nn.Module], Subject] | None = None

    def random(self, stream: str) -> int:
        """Make a seed for what a remedy draws in this step.

        It depends on the training run's seed and the step alone. So a resumed run draws the same,
        and so does a second pass over the same batch.

        Args:
            stream: A name that keeps the draws of several remedies apart.
        """
        text = f"{stream} {self.seed} {self.step}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


@dataclasses.dataclass(kw_only=True)
class StackState:
    """Where the training of many members at once stands.

    Args:
        epoch: The number of the epoch that is complete, from 1.
        epochs: How many epochs are planned.
        alive: Which members are still trained, of shape (members,). A member that diverged keeps
            its weights of an earlier epoch, and the stack's weights mean nothing for it.
        memory: The remedy's own store of tensors that are laid out like the stack's weights. The
            loop takes it back with the weights where steps are repeated, and hands each member its
            part by parameter name, as ``state.memory`` in ``finish``.

    >>> state = StackState(epoch=2, epochs=10, alive=torch.tensor([True, False]))
    >>> state.epoch / state.epochs, int(state.alive.sum())
    (0.2, 1)
    """

    epoch: int
    epochs: int
    alive: Tensor
    memory: dict[str, Tensor] = dataclasses.field(default_factory=dict)


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
    ranks advice. ``needs`` is what it cannot do without. ``horizon`` tells that it depends on the
    number of epochs planned: the checkpoint of a shorter or longer run is then refused.
    ``rowwise`` tells that ``losses`` treats every sample by itself and does not look at the state,
    so that an ensemble can call it once for equal members.

    A loop calls ``prepare`` first. It calls ``rate_factor`` and ``order`` before each epoch. In
    every step it calls ``inputs``, ``losses``, ``weights`` and ``penalty`` while it computes the
    loss, ``backward`` around that computation, and ``after_step`` behind the optimizer. It calls
    ``after_epoch`` after each epoch and ``finish`` at the end.

    :func:`mindgap.ensemble` trains many members at once. ``prepare`` and ``finish`` run once per
    member and need nothing more, and so do ``rate_factor``, ``inputs``, ``losses`` and ``penalty``.
    A remedy with other hooks also writes ``vectorized`` for what it does in a step and
    ``vectorized_epoch`` for ``after_epoch``, or its members are trained one after the other. A
    forward pre-hook that ``prepare`` puts on a module may have an attribute ``layer``: the module
    without weights that does the same in front of it. Engines that take a model apart read it, and
    refuse a hook that has none.
    """

    family: ClassVar[str] = "remedy"
    strength: ClassVar[str] = ""
    treats: ClassVar[frozenset[Symptom]] = frozenset()
    cost: ClassVar[float] = 1.0
    needs: ClassVar[frozenset[RemedyNeed]] = frozenset()
    horizon: ClassVar[bool] = False
    rowwise: ClassVar[bool] = False

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

    def rate_factor(self, state: TrainingState) -> float:  # noqa: ARG002
        """Return the factor of the learning rate in the epoch that begins."""
        return 1.0

    def order(self, state: TrainingState, samples: int) -> Tensor | None:  # noqa: ARG002
        """Choose the samples that the epoch visits, in their order.

        The answer may depend on the arguments and on the state's seed, epoch and epochs alone.

        Args:
            state: Where training stands.
            samples: How many training samples there are.

        Returns:
            As many places in the training data as there are samples, so that every epoch has the
            same number of steps; None for the loop's own order.
        """
        return None

    def inputs(self, state: TrainingState, inputs: Inputs) -> Inputs:  # noqa: ARG002
        """Return the inputs of a batch as the model is to see them.

        The answer may depend on the inputs and on the state's seed, epoch, epochs and step alone,
        and must not write to the inputs.

        Args:
            state: Where training stands.
            inputs: Positional inputs as a tuple, or named ones as a dict.
        """
        return inputs

    def losses(self, state: TrainingState, loss: Losses, output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002
        """Compute the losses of a batch.

        The answer may depend on the arguments and on the state's seed, epoch, epochs and step
        alone. A remedy that uses its memory here also writes another hook of the step.

        Args:
            state: Where training stands.
            loss: Takes outputs and targets, and gives one loss per sample.
            output: The model's output on the batch, with its graph.
            target: The targets of the batch.

        Returns:
            One number per sample that can be differentiated.
        """
        return loss(output, target)

    def weights(self, state: TrainingState, index: Tensor) -> Tensor | None:  # noqa: ARG002
        """Weigh the samples of a batch.

        Args:
            state: Where training stands.
            index: Places of the samples in the training data.

        Returns:
            One factor per sample for its loss, or None for no change.
        """
        return None

    def penalty(
        self,
        state: TrainingState,  # noqa: ARG002
        output: Tensor,  # noqa: ARG002
        target: Tensor,  # noqa: ARG002
        weights: Tensor | None,  # noqa: ARG002
    ) -> Tensor | None:
        """Add a term to the loss of a batch.

        The answer may depend on the arguments and on the state's seed, epoch, epochs and step
        alone.

        Args:
            state: Where training stands.
            output: The model's output on the batch, with its graph.
            target: The targets of the batch.
            weights: One factor per sample with which its loss is multiplied, or None for ones.

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
    def vectorized_epoch(cls, members: Sequence[Self], stack: Stack, state: StackState) -> None:
        """Do after an epoch for all members at once what ``after_epoch`` does for one.

        Write it if ``after_epoch`` looks at the weights alone and never stops training.

        Args:
            members: One remedy per member; they differ in their numbers only.
            stack: The weights of all members, which stay as they are.
            state: The epoch, and the memory that ``finish`` sees.
        """

    @classmethod
    def hooks(cls) -> frozenset[str]:
        """Return the names of the hooks that this remedy writes itself."""
        default = vars(Remedy)
        return frozenset(name for name in _HOOKS if getattr_static(cls, name) is not default[name])

    @classmethod
    def sequential_hook(cls) -> str:
        """Return a hook that has no vectorized form, or an empty string."""
        own = cls.hooks()
        if "vectorized" in own:
            return ""
        covered = {"after_epoch"} if "vectorized_epoch" in own else set()
        return next((hook for hook in _DURING if hook in own and hook not in covered), "")

    def misfit(self, task: Task, inputs: Inputs) -> str:
        """Say in one sentence why the remedy cannot treat a recipe; an empty string if it can.

        Args:
            task: The task of the recipe.
            inputs: The inputs of some samples.
        """
        if "classification" in self.needs and task != "classification":
            return f"The remedy {self.name!r} must train a classification, got a {task} task."
        shapes = [tuple(value.shape) for value in values(inputs)]
        if "images" in self.needs and not any(len(s) == _IMAGE_DIMENSIONS for s in shapes):
            return (
                f"The remedy {self.name!r} must see images of shape (samples, channels, rows, "
                f"columns), got {', '.join(map(str, shapes))}."
            )
        kinds = [str(value.dtype) for value in values(inputs) if not value.is_floating_point()]
        if "real inputs" in self.needs and kinds:
            return f"The remedy {self.name!r} must see real numbers, got inputs of {kinds[0]}."
        return ""

    def check(self, task: Task, inputs: Inputs) -> None:
        """Refuse a recipe that the remedy cannot treat.

        Args:
            task: The task of the recipe.
            inputs: The inputs of some samples.
        """
        if why := self.misfit(task, inputs):
            raise InputError(f"{why} Leave the remedy out.")

    @property
    def on(self) -> bool:
        """Whether the strength is not zero."""
        return bool(getattr(self, self.strength))

    def off(self) -> Self:
        """Return the same remedy at zero strength."""
        return self.replace(**{self.strength: type(getattr(self, self.strength))(0)})
