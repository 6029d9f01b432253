"""examine: measure a subject with all that the catalog holds, and report."""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mindgap.core import (
    InputError,
    Measure,
    MindgapError,
    Progress,
    Result,
    Subject,
    catalog,
    find,
    validated,
)
from mindgap.measures.basic.gap import Gap
from mindgap.measures.data.train_test_overlap import TrainTestOverlap
from mindgap.report.report import Report, build
from mindgap.training.fitted import Fitted

Chosen = str | Iterable[str | Measure]


@validated
def examine(
    subject: Subject | Fitted,
    *,
    measures: Chosen | None = None,
    bounds: Chosen | None = None,
    thorough: bool = False,
    delta: float = 0.05,
    hardest: int = 24,
    seed: int = 0,
    progress: bool = False,
) -> Report:
    """Measure a trained model and say how much it will lose on unseen data, and why.

    A measure that fails does not cost the others: it is reported with the reason. Ctrl-C ends the
    measuring and keeps what is done.

    Args:
        subject: A model with its loss and data, or what ``fit`` returned.
        measures: Names or instances of measures; by default all but the expensive ones.
        bounds: Names or instances of bounds; by default all but the expensive ones.
        thorough: Add what is expensive to compute.
        delta: The probability with which a bound, or an interval, may fail.
        hardest: The number of samples to show in each gallery.
        seed: The seed of measures that draw random numbers.
        progress: Show a progress bar.

    Returns:
        The report. Print it, show it in a notebook, or ``save`` it as .html, .json, .md or .txt.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> subject = Subject(torch.nn.Linear(1, 1), "mse", (x[::2], x[::2]), (x[1::2], x[1::2]))
    >>> report = examine(subject, measures=["gap", "training-loss"], bounds=())
    >>> [card.title for card in report.measures]
    ['Gap', 'Training loss']
    """
    started = time.perf_counter()
    stopped = subject.stopped if isinstance(subject, Fitted) else ""
    target = _checked(subject.subject() if isinstance(subject, Fitted) else subject, hardest)
    settings = {"delta": delta, "level": 1 - delta, "seed": seed, "shown": hardest}
    specs = [
        *_chosen("measure", measures, thorough, settings),
        *_chosen("bound", bounds, thorough, settings),
    ]
    results = list(_measured(specs, target, progress))
    found = {result.name: result for result in reversed(results)}
    told = {"delta": delta, "seed": seed, "thorough": thorough}
    report = build(
        target,
        list(zip(specs, results, strict=True)),
        # The verdict rests on these two, so they are measured even if nobody asked for them.
        gap=found.get(Gap.name) or Gap(level=1 - delta)(target),
        overlap=found.get(TrainTestOverlap.name) or TrainTestOverlap(shown=0)(target),
        stopped=stopped,
        settings=told,
    )
    return report.with_settings(seconds=time.perf_counter() - started)


def _checked(subject: Any, hardest: int) -> Subject:
    if not isinstance(subject, Subject):
        raise InputError(
            f"subject must be a Subject or what fit returns, got {type(subject).__name__}. "
            "Write Subject(model, loss, train, test)."
        )
    if hardest < 0:
        raise InputError(
            f"hardest must be at least 0, got {hardest}. Pass the number of samples to show."
        )
    # What is wrong with the data is wrong for every measure, so it is said at once.
    subject.losses("train")
    if subject.test is not None:
        subject.losses("test")
    return subject


def _chosen(
    family: str, wanted: Chosen | None, thorough: bool, settings: dict[str, Any]
) -> Iterator[Measure]:
    if wanted is None:
        known = [cls for cls in catalog(family).values() if issubclass(cls, Measure)]
        yield from (
            _instance(cls, settings) for cls in known if thorough or cls.cost != "expensive"
        )
        return
    for item in [wanted] if isinstance(wanted, str) else wanted:
        found = find(item, family) if isinstance(item, str) else item
        yield found if isinstance(found, Measure) else _instance(found, settings)


def _instance(cls: Any, settings: dict[str, Any]) -> Measure:
    """Return a spec with its defaults, except for the settings that it has a field for."""
    names = {field.name for field in dataclasses.fields(cls)}
    made: Measure = cls(**{name: value for name, value in settings.items() if name in names})
    return made


def _measured(specs: Sequence[Measure], subject: Subject, progress: bool) -> Iterator[Result]:
    interrupted = False
    with Progress(len(specs), unit="measure", shown=progress) as bar:
        for spec in specs:
            try:
                yield (
                    _undefined(spec, "not reached: interrupted")
                    if interrupted
                    else _tried(spec, subject)
                )
            except KeyboardInterrupt:
                interrupted = True
                yield _undefined(spec, "interrupted")
            bar.advance()


def _tried(spec: Measure, subject: Subject) -> Result:
    try:
        return spec(subject)
    except MindgapError as error:
        return _undefined(spec, str(error))
    except Exception as error:
        return _undefined(
            spec, f"failed with {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        )


def _undefined(spec: Measure, reason: str) -> Result:
    provenance = {"parameters": spec.parameters}
    return Result(
        name=spec.name,
        family=spec.family,
        value=None,
        status="undefined",
        reason=reason,
        provenance=provenance,
    )
