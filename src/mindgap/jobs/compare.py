"""compare: examine several subjects, and say which differ on the test data and where."""

import dataclasses
import datetime as dt
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mindgap.core import (
    InputError,
    Interval,
    NotFiniteError,
    Subject,
    binomial_upper_tail,
    holm,
    hypergeometric_tail,
    validated,
)
from mindgap.core.special import student_quantile, student_tail
from mindgap.jobs.examine import Checks, Chosen, chosen, examine
from mindgap.ops.samples import sample_hashes
from mindgap.report.pages.compare import Comparison, Pair, judge
from mindgap.report.report import versions
from mindgap.training.fitted import Fitted

Array = NDArray[np.float64] | NDArray[np.int64]
Subjects = Sequence[Subject | Fitted] | Mapping[str, Subject | Fitted]


@validated
def compare(
    subjects: Subjects,
    *,
    measures: Chosen | None = None,
    bounds: Chosen | None = None,
    diagnoses: Checks | None = None,
    thorough: bool = False,
    delta: float = 0.05,
    seed: int = 0,
    progress: bool = False,
) -> Comparison:
    """Examine several models side by side, and test which differ in their test error.

    Models with equal test data, in any order, are compared sample by sample: by McNemar's exact
    test for classes, else by a sign test and Student's test, which must both agree. With other
    test data the comparison is unpaired. All p-values are corrected together by Holm's method. The
    bounds hold for all models at once, so that one of them may be chosen by its test error.

    Args:
        subjects: Models with their loss and data, or what ``fit`` returned; a mapping names them.
        measures: Names or instances of measures; by default all but the expensive ones.
        bounds: Names or instances of bounds; by default all but the expensive ones.
        diagnoses: Names or instances of diagnoses; by default all.
        thorough: Add what is expensive to compute.
        delta: The probability with which a bound, an interval, or a difference may fail.
        seed: The seed of measures that draw random numbers.
        progress: Show a progress bar.

    Returns:
        The comparison. Print it, show it in a notebook, or ``save`` it.

    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> data = (x[::2], x[::2]), (x[1::2], x[1::2])
    >>> lines = {name: Subject(torch.nn.Linear(1, 1), "mse", *data) for name in ("one", "two")}
    >>> lines["two"].model.load_state_dict(lines["one"].model.state_dict())
    <All keys matched successfully>
    >>> print(compare(lines, measures=(), bounds=(), diagnoses=()).verdict.headline)
    No difference in test loss is shown between one and two.
    """
    given = _named(subjects)
    targets = {
        name: one.subject() if isinstance(one, Fitted) else one for name, one in given.items()
    }
    _check_tasks(targets)
    judged = sum(target.judged for target in targets.values())
    limits = list(chosen("bound", bounds, thorough, {"delta": delta, "hypotheses": judged}))
    reports = tuple(
        dataclasses.replace(
            examine(
                one,
                measures=_listed(measures),
                bounds=limits,
                diagnoses=_listed(diagnoses),
                thorough=thorough,
                delta=delta,
                hardest=0,
                seed=seed,
                progress=progress,
            ),
            title=name,
        )
        for name, one in given.items()
    )
    pairs = _pairs(targets, delta)
    return Comparison(
        title=" · ".join(given),
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        verdict=judge(reports, pairs),
        reports=reports,
        pairs=pairs,
        provenance={**versions(), "settings": {"delta": delta, "seed": seed}},
    )


def _listed(wanted: Any) -> Any:
    """Return what can be walked once per subject."""
    return wanted if wanted is None or isinstance(wanted, str) else list(wanted)


def _named(subjects: Subjects) -> dict[str, Subject | Fitted]:
    """Give every subject a name of its own."""
    if len(subjects) < 2:
        raise InputError(
            f"subjects must be at least two to be compared, got {len(subjects)}. Add another, or "
            "call examine."
        )
    if isinstance(subjects, Mapping):
        return dict(subjects)
    named: dict[str, Subject | Fitted] = {}
    for one in subjects:
        own = one.recipe.name if isinstance(one, Fitted) else one.name
        own = own or type(one.model).__name__
        tries = (own if k == 1 else f"{own} ({k})" for k in itertools.count(1))
        named[next(name for name in tries if name not in named)] = one
    return named


def _check_tasks(targets: Mapping[str, Subject]) -> None:
    (first, reference), *others = targets.items()
    for name, other in others:
        regression = reference.task == "regression"
        for what, own, its in (
            ("task", reference.task, other.task),
            ("loss", reference.loss.name, other.loss.name if regression else reference.loss.name),
        ):
            if own != its:
                raise InputError(
                    f"subjects must have the same {what}, got {own} for {first!r} and {its} for "
                    f"{name!r}. Compare models of one {what}."
                )


def _pairs(targets: Mapping[str, Subject], delta: float) -> tuple[Pair, ...]:
    """Compare every two subjects that have errors on test data; p-values are corrected."""
    tested = [name for name, subject in targets.items() if _has_errors(subject)]
    both = list(itertools.combinations(tested, 2))
    level = 1 - delta / max(len(both), 1)  # all intervals hold at once
    found = [_pair((one, targets[one]), (other, targets[other]), level) for one, other in both]
    corrected = holm([pair.p_value for pair in found]) if found else []
    return tuple(
        dataclasses.replace(pair, p_value=p_value, differs=p_value <= delta)
        for pair, p_value in zip(found, corrected, strict=True)
    )


def _has_errors(subject: Subject) -> bool:
    try:
        return subject.test is not None and len(subject.errors("test")) > 1
    except NotFiniteError:
        return False


def _pair(one: tuple[str, Subject], other: tuple[str, Subject], level: float) -> Pair:
    (first, left), (second, right) = one, other
    order = _alignment(left, right)
    errors = [subject.errors("test").double().cpu().numpy() for subject in (left, right)]
    classes = left.task == "classification"
    if order is not None:
        change = errors[0][order[0]] - errors[1][order[1]]
        interval, p_value = _paired(change, classes, level)
    else:
        interval, p_value = _unpaired(errors[0], errors[1], classes, level)
    return Pair(
        first=first,
        second=second,
        difference=float(errors[0].mean() - errors[1].mean()),
        interval=interval,
        p_value=p_value,
        paired=order is not None,
        samples=min(len(errors[0]), len(errors[1])),
    )


def _alignment(left: Subject, right: Subject) -> tuple[Array, Array] | None:
    """Return two orders in which the test samples of both are the same, or None."""
    one, other = left.split("test"), right.split("test")
    if len(one) != len(other):
        return None
    hashes = sample_hashes(one, like=other), sample_hashes(other, like=one)
    orders = tuple(found.argsort(stable=True) for found in hashes)
    same = torch.equal(hashes[0][orders[0]], hashes[1][orders[1]])
    return (orders[0].numpy(), orders[1].numpy()) if same else None


def _paired(change: Array, classes: bool, level: float) -> tuple[Interval, float]:
    """Compare sample by sample; for classes the sign test is McNemar's exact test."""
    mean, error = float(change.mean()), float(change.std(ddof=1)) / math.sqrt(len(change))
    worse, better = int((change > 0).sum()), int((change < 0).sum())
    sign = min(1.0, 2 * binomial_upper_tail(max(worse, better), worse + better, 0.5))
    interval = _around(mean, error, len(change) - 1, level)
    if classes:
        return interval, sign
    # A mean can fall because of a few samples, and most samples can improve while the mean rises.
    # "Lower" shall mean both.
    agrees = (mean > 0) == (worse > better)
    return interval, max(sign, _student(mean, error, len(change) - 1)) if agrees else 1.0


def _unpaired(left: Array, right: Array, classes: bool, level: float) -> tuple[Interval, float]:
    """Compare two sets of test samples: Fisher's exact test for classes, else Welch's test."""
    parts = [float(errors.var(ddof=1)) / len(errors) for errors in (left, right)]
    mean, error = float(left.mean() - right.mean()), math.sqrt(sum(parts))
    spread = sum(
        part**2 / (len(errors) - 1) for part, errors in zip(parts, (left, right), strict=True)
    )
    freedom = sum(parts) ** 2 / spread if spread else float(len(left) + len(right) - 2)
    interval = _around(mean, error, freedom, level)
    return interval, _fisher(left, right) if classes else _student(mean, error, freedom)


def _fisher(left: Array, right: Array) -> float:
    wrong, total = int(left.sum() + right.sum()), len(left) + len(right)
    tails = [
        hypergeometric_tail(int(errors.sum()), len(errors), wrong, total)
        for errors in (left, right)
    ]
    return min(1.0, 2 * min(tails))


def _around(mean: float, error: float, freedom: float, level: float) -> Interval:
    half = student_quantile(level, freedom) * error
    return Interval(low=mean - half, high=mean + half, level=level)


def _student(mean: float, error: float, freedom: float) -> float:
    if mean == 0:
        return 1.0
    return student_tail(mean / error if error > 0 else math.inf, freedom)
