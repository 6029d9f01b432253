"""The plain facts about a subject, and what its training curves show."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from mindgap.core import NotFiniteError, Subject
from mindgap.core.bound import constant_error
from mindgap.ops.models.parameters import count
from mindgap.report.parts import Facts


def facts_of(subject: Subject, overlap: float = 0.0, stopped: str = "") -> Facts:
    """Sizes, errors and the baseline of a subject.

    Args:
        subject: What was measured.
        overlap: The share of test samples that are training samples.
        stopped: Why training ended before its time.
    """
    tested = subject.test is not None
    loss, error = _unless_unknown(subject.mean_loss), _unless_unknown(subject.mean_error)
    return Facts(
        name=subject.name,
        task=subject.task,
        loss=subject.loss.name,
        train_samples=len(subject.train),
        test_samples=len(subject.test) if subject.test is not None else 0,
        parameters=sum(count(subject.model).values()),
        train_loss=loss("train"),
        train_error=error("train"),
        baseline=_unless_unknown(constant_error)(subject),
        test_loss=loss("test") if tested else None,
        test_error=error("test") if tested else None,
        overlap=overlap,
        initial=subject.initial is not None,
        stopped=stopped,
    )


def _unless_unknown(function: Callable[..., float]) -> Callable[..., float]:
    """Return a function that gives NaN where weights or outputs are no numbers."""

    def known(*arguments: object) -> float:
        try:
            return function(*arguments)
        except NotFiniteError:
            return math.nan

    return known


RISE = 0.05  # a loss wobbles by a few percent from epoch to epoch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """Where a loss on unseen data was lowest, before it rose while the training loss fell."""

    which: str
    epoch: int
    lowest: float
    last: float


def series(curves: Sequence[Mapping[str, float]], name: str) -> tuple[list[float], list[float]]:
    """Epochs and values of one curve, where it was evaluated and finite."""
    found = [
        (row.get("epoch", float(k + 1)), row[name]) for k, row in enumerate(curves) if name in row
    ]
    kept = [(epoch, value) for epoch, value in found if math.isfinite(value)]
    return [epoch for epoch, _ in kept], [value for _, value in kept]


def turning_point(curves: Sequence[Mapping[str, float]]) -> Turn | None:
    """Find the lowest validation (else test) loss, if it rose while the training loss fell."""
    which = "validation" if series(curves, "validation_loss")[1] else "test"
    epochs, values = series(curves, f"{which}_loss")
    train = dict(zip(*series(curves, "train_loss"), strict=True))
    if len(values) < 3:
        return None
    place = min(range(len(values)), key=values.__getitem__)
    fell = train.get(epochs[-1], math.inf) < train.get(epochs[place], -math.inf)
    if not fell or values[-1] <= (1 + RISE) * values[place]:
        return None
    return Turn(which=which, epoch=int(epochs[place]), lowest=values[place], last=values[-1])
