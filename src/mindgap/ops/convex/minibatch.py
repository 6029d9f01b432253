"""A head trained in small batches by Adam, as the papers do: any loss, no optimum promised.

Which convex problem a head and a loss make: found by comparing numbers, whatever the loss is
called.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import InputError, Subject, as_loss, generator
from mindgap.ops.convex.heads import Kind
from mindgap.ops.models.head import head_outputs


@dataclasses.dataclass(frozen=True)
class Minibatch:
    """How long and how fast."""

    epochs: int = 25
    learning_rate: float = 1e-3
    batch_size: int = 25
    l2: float = 0.0


def train_head(
    features: Tensor,
    target: Tensor,
    weights: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    start: tuple[Tensor, Tensor | None],
    settings: Minibatch,
    seed: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """Weight and bias after some epochs of Adam on the weighted mean loss of each batch plus λ/2 ‖W‖².

    ``loss(outputs, target)`` gives one number per sample. The order of the samples depends on
    ``seed`` alone.
    """
    weight = start[0].detach().clone().requires_grad_()
    bias = None if start[1] is None else start[1].detach().clone().requires_grad_()
    leaves = [weight] if bias is None else [weight, bias]
    optimizer = torch.optim.Adam(leaves, lr=settings.learning_rate)
    random, scale = generator(seed), weights.to(weight)
    with torch.enable_grad():
        for _ in range(settings.epochs):
            for index in torch.randperm(len(features), generator=random).split(settings.batch_size):
                outputs = torch.nn.functional.linear(features[index], weight, bias)
                value = (loss(outputs, target[index]) * scale[index]).mean()
                if settings.l2:
                    value = value + 0.5 * settings.l2 * weight.square().sum()
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                optimizer.step()
    return weight.detach(), None if bias is None else bias.detach()


LOSSES: dict[Kind, str] = {"softmax": "cross_entropy", "logistic": "bce", "squares": "mse"}
TASKS: dict[str, Kind] = {
    "classification": "softmax",
    "multilabel": "logistic",
    "regression": "squares",
}
PROBE = 256


def kind_of(subject: Subject, features: Tensor, head: str) -> Kind:
    """The problem whose loss of the head's outputs is the subject's loss of the model's outputs.

    So a model that ends in a log-softmax before a negative log likelihood is a softmax too, and
    label smoothing, which has another optimum, is not.
    """
    kind = TASKS[subject.task]
    outputs = head_outputs(subject, features[:PROBE], head)
    ours = as_loss(LOSSES[kind])(outputs, subject.targets("train")[:PROBE])
    theirs = subject.losses("train")[:PROBE]
    if not _close(ours, theirs):
        raise InputError(
            f"The exact solver must have a head {head!r} whose outputs enter {LOSSES[kind]} "
            "directly, got another loss "
            f"({subject.loss.name}) or another layer in between. Pass solver='minibatch', or "
            "head='…'."
        )
    return kind


def is_direct(subject: Subject, features: Tensor, head: str) -> bool:
    """Whether the head's outputs are the model's."""
    ours, theirs = head_outputs(subject, features[:PROBE], head), subject.outputs("train")[:PROBE]
    return ours.numel() == theirs.numel() and _close(ours.flatten(), theirs.flatten())


def _close(ours: Tensor, theirs: Tensor) -> bool:
    ours, theirs = ours.double(), theirs.double()
    return bool(
        torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().mean()) + 1e-12)
    )
