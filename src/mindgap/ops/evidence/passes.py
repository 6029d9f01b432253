"""Passes of a model over the same samples, in any mode, and the errors that they give."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import Split, Subject, Which, align, evaluating
from mindgap.core.bound import constant_error

SAMPLES = 2_000  # enough to see half a point of error
UNLIKE = 0.1  # of the targets' standard deviation: a regression's prediction counts as another one


def unseen(subject: Subject) -> Which:
    """Return the split to judge on: the test data, if there are any."""
    return "train" if subject.test is None else "test"


def some_places(subject: Subject, which: Which, most: int = SAMPLES) -> Tensor:
    """Return the places of up to so many samples, drawn at random, always the same ones."""
    random = torch.Generator().manual_seed(0)
    return torch.randperm(len(subject.split(which)), generator=random)[:most].sort().values


def operations(subject: Subject) -> int:
    """Count the additions and multiplications of one sample's forward pass, at least one.

    >>> data = (torch.zeros(2, 3), torch.tensor([0, 1]))
    >>> operations(Subject(torch.nn.Linear(3, 2), "cross_entropy", data))
    12
    """

    def count() -> int:
        from torch.utils.flop_counter import FlopCounterMode  # takes as long as a small measure

        pair = subject.train.take(
            torch.arange(min(2, len(subject.train)))
        )  # for statistics of a batch
        with evaluating(subject.model), FlopCounterMode(display=False) as counter:
            subject.forward(pair.inputs)
        return max(1, int(counter.get_total_flops()) // len(pair.target))

    return subject.cached("operations", count)


def pass_over(answer: Callable[..., Tensor], samples: Split, size: int) -> Tensor:
    """Return the outputs for all samples, in batches of one size, without a gradient."""
    # Statistics of a last batch of one sample do not exist, and are nobody's question here.
    size += size > 1 and len(samples) % size == 1
    with torch.no_grad():
        return torch.cat([answer(batch.inputs) for batch in samples.batches(size)])


def errors_of(subject: Subject, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the 0-1 error of every sample, or its loss in units of the best constant's.

    Args:
        subject: Says what an error is.
        outputs: Outputs of the model, or of a variant of it.
        targets: The targets of the same samples.

    >>> data = (torch.zeros(3, 1), torch.tensor([0, 1, 1]))
    >>> subject = Subject(torch.nn.Linear(1, 2), "cross_entropy", data)
    >>> errors_of(subject, torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), data[1]).tolist()
    [0.0, 1.0, 0.0]
    """
    like = align(outputs, targets.to(outputs.device))
    if subject.task == "regression":
        return subject.loss(outputs, like.to(outputs.dtype)).detach() / unit(subject)
    if subject.task == "classification":
        return (outputs.argmax(1) != like).float()
    wrong = ((outputs > 0) != (like > 0.5)).float()
    return wrong.flatten(1).mean(1) if wrong.ndim > 1 else wrong


def unit(subject: Subject) -> float:
    """Return what an error is a share of: one for a rate, the best constant's loss otherwise."""
    return max(constant_error(subject), 1e-12) if subject.task == "regression" else 1.0


def constant_loss(subject: Subject) -> float:
    """Return about the loss of the best constant output; of classes, as if they were balanced."""
    if subject.task == "regression":
        return constant_error(subject)
    return math.log(subject.outputs("train").shape[1] if subject.task == "classification" else 2)


def unlike(subject: Subject, one: Tensor, other: Tensor) -> Tensor:
    """Tell for every sample whether two passes give it different predictions.

    In a regression they must differ by more than a tenth of the targets' standard deviation.
    """
    if subject.task == "classification":
        return one.argmax(1) != other.argmax(1)
    if subject.task == "multilabel":
        return ((one > 0) != (other > 0)).reshape(len(one), -1).any(1)
    spread = subject.targets("train").double().std(0, correction=0).max().clamp_min(1e-12)
    return ((one - other).double().abs() > UNLIKE * spread).reshape(len(one), -1).any(1)
