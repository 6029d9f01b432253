"""The plain facts about a subject, and what its training curves show."""

import math
from collections.abc import Callable

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
