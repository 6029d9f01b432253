"""Heads trained in minibatches by Adam, and which heads have an exact solver."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import InputError, Subject, as_loss, generator
from mindgap.ops.convex.heads import Kind
from mindgap.ops.models.head import head_outputs

LOSSES: dict[Kind, str] = {"softmax": "cross_entropy", "logistic": "bce", "squares": "mse"}
TASKS: dict[str, Kind] = {
    "classification": "softmax",
    "multilabel": "logistic",
    "regression": "squares",
}
PROBE = 256  # samples on which two losses are compared


@dataclasses.dataclass(frozen=True)
class Minibatch:
    """Settings of Adam for a head.

    Attributes:
        epochs: Passes over the data.
        learning_rate: Learning rate.
        batch_size: Batch size.
        l2: Penalty λ on the squared norm of the weight.
    """

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
    """Train a head by Adam on the weighted mean loss of each batch plus λ/2 ‖W‖².

    Args:
        features: Inputs of the head (samples, width).
        target: Targets, as the loss takes them.
        weights: One weight per sample.
        loss: Takes outputs and targets and returns one number per sample.
        start: Initial weight and bias.
        settings: Epochs, learning rate, batch size and penalty.
        seed: Seed of the order of the samples.

    Returns:
        The trained weight and bias.

    >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]])
    >>> weight, bias = train_head(
    ...     x,
    ...     y,
    ...     torch.ones(2),
    ...     lambda outputs, target: (outputs - target).square().mean(1),
    ...     (torch.zeros(1, 1), torch.zeros(1)),
    ...     Minibatch(epochs=500, learning_rate=0.05, batch_size=2),
    ... )
    >>> round(float(weight), 2), round(float(bias), 2)
    (2.0, 1.0)
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


def kind_of(subject: Subject, features: Tensor, head: str) -> Kind:
    """Find the convex problem that a subject's head and loss make, or raise if there is none.

    Losses are compared by value, not by name. So a log-softmax before a negative log likelihood
    counts as a softmax too, and label smoothing, which has another optimum, does not.

    Args:
        subject: Model, loss and data.
        features: Inputs of the head on the training data.
        head: The head's name in the model.

    >>> from mindgap.ops.models.head import head_features
    >>> data = (torch.randn(8, 3), torch.arange(8) % 2)
    >>> subject = Subject(torch.nn.Sequential(torch.nn.Linear(3, 2)), "cross_entropy", data)
    >>> kind_of(subject, head_features(subject), "0")
    'softmax'
    """
    kind = TASKS[subject.task]
    outputs = head_outputs(subject, features[:PROBE], head)
    ours = as_loss(LOSSES[kind])(outputs, subject.targets("train")[:PROBE])
    theirs = subject.losses("train")[:PROBE]
    if not _close(ours, theirs):
        raise InputError(
            f"The exact solver must have a head {head!r} whose outputs enter {LOSSES[kind]} "
            f"directly, got another loss ({subject.loss.name}) or another layer in between. Pass "
            "solver='minibatch', or head='…'."
        )
    return kind


def is_direct(subject: Subject, features: Tensor, head: str) -> bool:
    """Check whether the head's outputs are the model's outputs.

    Args:
        subject: Model, loss and data.
        features: Inputs of the head on the training data.
        head: The head's name in the model.
    """
    ours, theirs = head_outputs(subject, features[:PROBE], head), subject.outputs("train")[:PROBE]
    return ours.numel() == theirs.numel() and _close(ours.flatten(), theirs.flatten())


def _close(ours: Tensor, theirs: Tensor) -> bool:
    ours, theirs = ours.double(), theirs.double()
    return bool(
        torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().mean()) + 1e-12)
    )
