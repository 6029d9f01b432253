"""What an engine must train, and the exception with which it refuses."""

import dataclasses

from torch import Tensor, nn

from mindgap.core import Inputs, Loss, Task, values
from mindgap.core.loss import NAMED
from mindgap.training.vectorized.hooks import Hooks


class Unsupported(Exception):  # noqa: N818  (a verdict that another engine answers)
    """This engine cannot train these members; the text is the reason."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """New models, the data that they share, and what differs from member to member.

    Args:
        models: One per member.
        seeds: One per member.
        inputs: The inputs of all training samples.
        targets: Their targets, in the type that the loss takes.
        weights: Sample weights, of shape (samples,) or (members, samples).
        loss: The loss, the same for all members.
        task: The task, the same for all members.
        batch_size: Samples per step.
        hooks: What remedies do to inputs and losses, member by member.
    """

    models: list[nn.Module]
    seeds: tuple[int, ...]
    inputs: Inputs
    targets: Tensor
    weights: Tensor | None
    loss: Loss
    task: Task
    batch_size: int
    hooks: Hooks

    @property
    def samples(self) -> int:
        """Number of training samples."""
        return len(self.targets)

    @property
    def members(self) -> int:
        """Number of models."""
        return len(self.models)

    @property
    def full(self) -> bool:
        """Whether every batch holds all samples."""
        return self.batch_size >= self.samples

    @property
    def like(self) -> Tensor:
        """A parameter, for its device and precision."""
        return next(self.models[0].parameters())

    @property
    def named_loss(self) -> str:
        """The name of a loss whose gradient is written by hand, or an empty string."""
        known = NAMED.get(self.loss.name)
        return self.loss.name if known is not None and known[1] is self.loss.per_sample else ""

    def single_input(self) -> Tensor:
        """Return the only input of the model, in its precision."""
        if isinstance(self.inputs, dict) or len(self.inputs) != 1:
            raise Unsupported("the model takes several inputs")
        if not self.inputs[0].is_floating_point():
            raise Unsupported("the inputs are not real numbers")
        return self.inputs[0].to(self.like)

    def hooked_input(self, member: int, places: Tensor) -> Tensor:
        """Return the samples at these places as the remedies of a member let its model see them."""
        assert not isinstance(self.inputs, dict)
        taken = (self.inputs[0].index_select(0, places),)
        return values(self.hooks.inputs(member, taken))[0].to(self.like)


def all_trainable(problem: Problem) -> None:
    """Refuse frozen parameters, for engines that own every parameter of a chain."""
    if not all(parameter.requires_grad for parameter in problem.models[0].parameters()):
        raise Unsupported("some parameters are frozen")
