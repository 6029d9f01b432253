"""What is attacked: a model, what counts as a broken prediction, and what an attack increases."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mindgap.core import (
    InputError,
    Loss,
    Task,
    align,
    as_loss,
    call,
    check_classes,
    checked_call,
    evaluating,
)
from mindgap.core.purity import preserved

Objective = Literal["loss", "margin"]
_SOFTMAX = {
    nn.functional.softmax,
    nn.functional.log_softmax,
    torch.softmax,
    torch.log_softmax,
    Tensor.softmax,
    Tensor.log_softmax,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Victim:
    """A model under attack, in evaluation mode.

    A prediction is broken if its class is wrong, if any of its labels is wrong, or if a number is
    farther from its target than ``tolerance``.

    Args:
        model: Takes one tensor and gives outputs, as a Subject's model does.
        loss: One number per sample.
        task: Says what a broken prediction is.
        tolerance: In a regression, how far from its target a prediction may be.
        objective: What an attack increases: the ``"loss"``, or the negative ``"margin"``, which
            neither saturates nor underflows. The margin is that of the logits, also where the
            model ends in a softmax.
        channels_last: Whether images are handed over with their channels last in memory, in which
            convolutions and pooling take less time on a CPU; see ``checked``.

    >>> victim = Victim.of(nn.Identity(), "cross_entropy")
    >>> outputs, targets = torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0])
    >>> victim.broken(outputs, targets).tolist(), victim.gaps(outputs, targets).tolist()
    ([False, True], [[inf, 1.0], [inf, -3.0]])
    """

    model: nn.Module
    loss: Loss
    task: Task
    tolerance: float = math.inf
    objective: Objective = "loss"
    channels_last: bool = False

    @classmethod
    def of(
        cls,
        model: nn.Module,
        loss: str | Loss | Callable[..., Tensor] = "cross_entropy",
        task: Task | None = None,
        **more: Any,
    ) -> Self:
        """Make a victim from a model and a loss; a loss without a task is a regression's."""
        known = as_loss(loss)
        return cls(model=model, loss=known, task=task or known.task or "regression", **more)

    def aiming(self, objective: Objective) -> Self:
        """Return the same victim for attacks that increase something else."""
        return dataclasses.replace(self, objective=objective)

    @property
    def like(self) -> Tensor:
        """A tensor of the model's device and precision."""
        tensors = itertools.chain(self.model.parameters(), self.model.buffers())
        return next((t for t in tensors if t.is_floating_point()), torch.empty(0))

    def checked(self, inputs: Tensor, targets: Tensor) -> Self:
        """Refuse inputs that the model does not take, and outputs on which the task is not defined.

        Returns:
            The victim, whose images have their channels last if the model takes them so.
        """
        few = inputs[:2]
        with torch.no_grad():
            outputs = checked_call(self.model, (few,), self.like)
        if self.task == "classification":
            check_classes(outputs, targets, "test")
        elif align(outputs, targets[:2]).shape != outputs.shape:
            raise InputError(
                f"The model's outputs must have the targets' shape {tuple(targets[:2].shape)}, got "
                f"{tuple(outputs.shape)}. Reshape the targets."
            )
        return dataclasses.replace(self, channels_last=self._takes_channels_last(few, outputs))

    def outputs(self, points: Tensor) -> Tensor:
        """Return the model's outputs."""
        given = _with_channels_last(points) if self.channels_last else points
        return call(self.model, (given,), self.like)

    @torch.no_grad()
    def _takes_channels_last(self, few: Tensor, outputs: Tensor) -> bool:
        if few.ndim != 4 or few.dtype != torch.float32 or few.device.type != "cpu":
            return False
        if not any(isinstance(module, nn.Conv2d) for module in self.model.modules()):
            return False
        try:
            same = call(self.model, (_with_channels_last(few),), self.like)
        except RuntimeError:  # of a view, which needs the usual order
            return False
        size = float(outputs.abs().nan_to_num(0.0, 0.0).amax())
        return torch.allclose(same, outputs, rtol=0, atol=1e-5 * size, equal_nan=True)

    @torch.no_grad()
    def answers(self, inputs: Tensor, batch_size: int) -> Tensor:
        """Return the outputs on any number of inputs, and leave the model as it was."""
        with preserved(self.model, weights=False), evaluating(self.model):
            return torch.cat([self.outputs(part) for part in inputs.split(batch_size)])

    def outputs_and_logits(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs, and what a softmax at the end of the model took, if there is one."""
        with _Watched() as watched:
            outputs = self.outputs(points)
        return outputs, watched.inputs if outputs is watched.outputs else outputs

    def broken(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Tell which predictions are wrong."""
        if self.task == "classification":
            return outputs.argmax(1) != targets
        return (self.gaps(outputs, targets) <= 0).any(1)

    def gaps(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return how far every output is from breaking the prediction; at zero it breaks."""
        if self.task == "classification":
            true = outputs.gather(1, targets[:, None])
            return (true - outputs).scatter(1, targets[:, None], torch.inf)
        wanted = align(outputs, targets)
        if self.task == "multilabel":
            return _rows((2 * wanted - 1) * outputs)
        return _rows(self.tolerance - (outputs - wanted).abs())

    def scores(self, points: Tensor, targets: Tensor, goal: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the outputs, and what an attack increases.

        Args:
            points: The inputs, which may have a graph.
            targets: The true targets.
            goal: The classes to reach; None to get away from the true ones.
        """
        if self.objective == "margin":
            outputs, logits = self.outputs_and_logits(points)
            if goal is None:
                return outputs, -self.gaps(logits, targets).amin(1)
            return outputs, self.gaps(logits, goal).amin(1)
        outputs = self.outputs(points)
        # Towards a class, its loss must fall: with a plus sign, as on some slides, it would rise.
        losses = self._losses(outputs, targets) if goal is None else -self._losses(outputs, goal)
        return outputs, losses

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every sample.

        Torch differentiates the cross entropy of a yes/no label as sigmoid minus target, which is
        rounded to zero from a logit of 17 on. The same loss of the margin keeps its slope.
        """
        if self.task == "multilabel" and self.loss.name == "bce":
            return nn.functional.softplus(-self.gaps(outputs, targets)).mean(1)
        return self.loss(outputs, targets)


def _rows(values: Tensor) -> Tensor:
    """Return one row per sample, also where a model has a single number for each."""
    return values.unsqueeze(1).flatten(1)


def _with_channels_last(images: Tensor) -> Tensor:
    """Return equal images in another order in memory, also if they have one channel."""
    sizes = images.movedim(1, -1).shape[1:]  # torch takes one channel for the usual order otherwise
    ordered: Tensor = images.movedim(1, -1).flatten(1).unflatten(1, sizes).movedim(-1, 1)
    return ordered


class _Watched(TorchFunctionMode):
    """Remembers what the last softmax took and gave, also one that is called as a function."""

    inputs: Tensor
    outputs: Tensor | None = None

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        if function in _SOFTMAX:
            self.inputs = args[0] if args else kwargs["input"]
            self.outputs = found
        return found
