"""What the hooks of a remedy see: one training run, or the members of an ensemble at once."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from mindgap.core.subject import Subject


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
