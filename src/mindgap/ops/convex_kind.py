"""Which convex problem a head and a loss make: found by comparing numbers, whatever the loss is called."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.core.errors import InputError
from mindgap.core.loss import as_loss
from mindgap.core.subject import Subject
from mindgap.ops.convex import Kind
from mindgap.ops.head import head_outputs

LOSSES: dict[Kind, str] = {"softmax": "cross_entropy", "logistic": "bce", "squares": "mse"}
TASKS: dict[str, Kind] = {"classification": "softmax", "multilabel": "logistic", "regression": "squares"}
PROBE = 256


def kind_of(subject: Subject, features: Tensor, head: str) -> Kind:
    """The problem whose loss of the head's outputs is the subject's loss of the model's outputs.

    So a model that ends in a log-softmax before a negative log likelihood is a softmax too, and label smoothing,
    which has another optimum, is not.
    """
    kind = TASKS[subject.task]
    outputs = head_outputs(subject, features[:PROBE], head)
    ours = as_loss(LOSSES[kind])(outputs, subject.targets("train")[:PROBE])
    theirs = subject.losses("train")[:PROBE]
    if not _close(ours, theirs):
        raise InputError(
            f"The exact solver must have a head {head!r} whose outputs enter {LOSSES[kind]} directly, got another loss "
            f"({subject.loss.name}) or another layer in between. Pass solver='minibatch', or head='…'."
        )
    return kind


def is_direct(subject: Subject, features: Tensor, head: str) -> bool:
    """Whether the head's outputs are the model's."""
    ours, theirs = head_outputs(subject, features[:PROBE], head), subject.outputs("train")[:PROBE]
    return ours.numel() == theirs.numel() and _close(ours.flatten(), theirs.flatten())


def _close(ours: Tensor, theirs: Tensor) -> bool:
    ours, theirs = ours.double(), theirs.double()
    return bool(torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().mean()) + 1e-12))
