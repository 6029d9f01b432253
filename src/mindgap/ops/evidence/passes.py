"""Passes of a model over the same samples, in any mode: their cost, and the errors they give."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mindgap.core import Split, Subject, Undefined, Which, align, evaluating, option, seeded
from mindgap.core.bound import constant_error
from mindgap.ops.curvature.flat_loss import plain_attention

SAMPLES = 2_000  # enough to see half a point of error
# Of all forward passes that one measure or diagnosis takes, about ten CPU seconds, and how many times
# as many they may be where fewer samples would say nothing. They are counted, not timed: the same
# subject must give the same numbers on every machine.
WORK, LARGER = 5e11, 4.0
UNLIMITED = 1e30  # operations, where a measure is asked for
FEWEST = 8  # samples that a pass is worth its while for
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
        pair = subject.train.take(
            torch.arange(min(2, len(subject.train)))
        )  # for statistics of a batch
        with evaluating(subject.model):
            found = counted(lambda: subject.forward(pair.inputs))
        return max(1, found // len(pair.target))

    return subject.cached("operations", count)


def counted(run: Callable[[], object]) -> int:
    """Count the additions and multiplications in calls of torch.

    Fused kernels of attention and recurrent layers, which hide theirs, are not used inside.

    Args:
        run: Makes the calls.

    >>> counted(lambda: torch.ones(2, 3) @ torch.ones(3, 1))
    12
    """
    from torch.utils.flop_counter import FlopCounterMode  # takes as long as a small measure

    with warnings.catch_warnings(), plain_attention():
        warnings.simplefilter("ignore")  # setting one flag warns of another one
        counter = FlopCounterMode(display=False)
        with torch.backends.mkldnn.flags(enabled=False), counter:
            run()
    return int(counter.get_total_flops())


def limited() -> Any:
    """Declare a measure's field for the operations that its passes may take.

    ``examine`` lifts the limit where the measure is named, or all measures are asked for.
    """
    return option(
        WORK,
        help="operations that passes may take; of a large model fewer samples are used",
        above=0,
    )


def affordable(
    subject: Subject,
    most: int,
    *,
    passes: float = 1.0,
    once: float = 0.0,
    fewest: int = FEWEST,
    work: float | None = None,
) -> int:
    """Return how many samples may go through a model; raise Undefined if even few are too many.

    Args:
        subject: Its model counts.
        most: How many are wanted.
        passes: How many forward passes each of them takes; a backward pass costs as much as two.
        once: How many forward passes of one sample are taken besides, whatever their number.
        fewest: How many must be used at least.
        work: Operations that all passes may take, as a field of a measure says; ``WORK`` if None. To
            use the fewest samples, four times as many may be.

    >>> data = (torch.zeros(2, 3), torch.tensor([0, 1]))
    >>> subject = Subject(torch.nn.Linear(3, 2), "cross_entropy", data)
    >>> (
    ...     affordable(subject, 1000),
    ...     affordable(subject, 1000, work=1200),
    ...     affordable(subject, 9, work=30),
    ... )
    (1000, 100, 8)
    """
    each, limit = operations(subject), WORK if work is None else work
    needed = (fewest * passes + once) * each
    if needed > LARGER * limit:
        hint = "" if work is None else "; name it, raise its work, or ask for all (thorough)"
        raise Undefined(
            f"its passes through this model take at least {needed:.1e} operations, and "
            f"{LARGER * limit:.1e} are allowed{hint}"
        )
    return int(min(most, max(fewest, (limit / each - once) / passes)))


def asked_twice(subject: Subject, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pass twice over the same samples that are to be judged on, once per subject.

    Args:
        subject: Its model answers in evaluation mode, from the same state of the random numbers.
        most: How many samples; fewer of a large model.

    Returns:
        Places of the samples, and the outputs of both passes.

    >>> data = (torch.zeros(2, 3), torch.tensor([0, 1]))
    >>> asked_twice(Subject(torch.nn.Linear(3, 2), "cross_entropy", data), 1000)[0].tolist()
    [0, 1]
    """

    def ask() -> tuple[Tensor, Tensor, Tensor]:
        places = some_places(subject, unseen(subject), affordable(subject, most, passes=2))
        some = subject.split(unseen(subject)).subset(places)
        with evaluating(subject.model), seeded(0):
            first, second = (
                pass_over(subject.checked_forward, some, subject.batch_size) for _ in range(2)
            )
        return places, first, second

    return subject.cached(("asked twice", most), ask)


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
