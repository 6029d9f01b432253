"""examine: measure a subject with all that the catalog holds, look for what is wrong, and report."""

import contextlib
import copy
import dataclasses
import math
import os
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mindgap.core import (
    Diagnosis,
    InputError,
    Measure,
    MindgapError,
    NotFiniteError,
    Progress,
    Result,
    Subject,
    catalog,
    find,
    validated,
)
from mindgap.diagnoses.diagnose import INTERRUPTED, NO_NUMBERS, NOT_REACHED, diagnose, skipped
from mindgap.diagnoses.model.not_finite import NotFinite
from mindgap.measures.basic.gap import Gap
from mindgap.measures.data.train_test_overlap import TrainTestOverlap
from mindgap.ops.evidence.passes import UNLIMITED
from mindgap.ops.initialization.subject import untrained
from mindgap.report.report import Report, build
from mindgap.training.fitted import Fitted

Chosen = str | Iterable[str | Measure]
Checks = str | Iterable[str | Diagnosis]
Costs = Mapping[Hashable, float]
# CPU seconds: what took longer is not measured at the initial weights too, and all that may take.
AGAIN, ALTOGETHER = 0.5, 5.0
# CPU seconds that measures of moderate cost get together if nobody asked for them. Each counts its
# operations and takes fewer samples of a large model, so that only a slow machine gets there.
LIMIT = 300.0
TOO_LONG = (
    "left out: on this model it takes long, and such measures get 5 minutes of CPU time together; "
    "name it, or ask for all of them (thorough)"
)


@validated
def examine(
    subject: Subject | Fitted,
    *,
    measures: Chosen | None = None,
    bounds: Chosen | None = None,
    diagnoses: Checks | None = None,
    thorough: bool = False,
    delta: float = 0.05,
    hardest: int = 24,
    seed: int = 0,
    store: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Report:
    """Measure a trained model, and say what is wrong with it and how well it does on unseen data.

    A measure or a check that fails does not cost the others: it is reported with the reason. Ctrl-C
    ends the measuring and keeps what is done.

    Args:
        subject: A model with its loss and data, or what ``fit`` returned.
        measures: Names or instances of measures; by default all but the expensive ones.
        bounds: Names or instances of bounds; by default all but the expensive ones.
        diagnoses: Names or instances of diagnoses; by default all.
        thorough: Add what is expensive to compute.
        delta: The probability with which a bound, or an interval, may fail.
        hardest: The number of samples to show in each gallery.
        seed: The seed of measures that draw random numbers.
        store: A store of runs whose models were compared on the same test data. They are counted,
            every evaluated epoch included, and guarantees hold for all of them.
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
    stopped, in_use = (
        (subject.stopped, subject.remedies) if isinstance(subject, Fitted) else ("", ())
    )
    target = _checked(subject.subject() if isinstance(subject, Fitted) else subject, hardest)
    if store is not None:
        target = _counted(target, store)
    common = {"delta": delta, "level": 1 - delta, "seed": seed, "shown": hardest}
    asked = thorough or measures is not None
    settings = {**common, "hypotheses": target.judged, **({"work": UNLIMITED} if asked else {})}
    specs = [
        *chosen("measure", measures, thorough, settings),
        *chosen("bound", bounds, thorough, settings),
    ]
    checks = _checks(diagnoses, {**common, "stopped": stopped})
    with Progress(len(specs) + len(checks), unit="check", shown=progress) as bar:
        bar.begin("pass over the data")
        finite = _is_finite(target)
        if not finite and not any(isinstance(check, NotFinite) for check in checks):
            checks.append(NotFinite())  # the verdict must name the layer, whatever was chosen
        limit = math.inf if asked else LIMIT
        measured = list(_measured(specs, target, bar, "" if finite else NO_NUMBERS, limit))
        results = [result for result, _ in measured]
        found = {result.name: result for result in reversed(results)}
        # Whoever interrupts the measuring wants no checks either.
        interrupted = any(result.reason == INTERRUPTED for result in results)
        diagnosed = (
            skipped(checks, NOT_REACHED)
            if interrupted
            else diagnose(target, found, diagnoses=checks, in_use=in_use, progress=bar)
        )
    report = build(
        target,
        list(zip(specs, results, strict=True)),
        before=[None] * len(specs) if interrupted else _before(specs, measured, target),
        # Every report tells these two, so they are measured even if nobody asked for them.
        gap=found.get(Gap.name) or _tried(Gap(level=1 - delta), target),
        overlap=found.get(TrainTestOverlap.name) or TrainTestOverlap(shown=0)(target),
        diagnosed=diagnosed,
        stopped=stopped,
        settings={"delta": delta, "seed": seed, "thorough": thorough},
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
    return subject


def _counted(subject: Subject, store: str | os.PathLike[str]) -> Subject:
    """Return the subject with the number of models that a store holds, this one included."""
    from mindgap.runs.tried import tried  # only this needs SQLite

    counted = copy.copy(subject)
    counted.judged = max(subject.judged, tried(store).models)
    return counted


def _is_finite(subject: Subject) -> bool:
    """Tell whether weights and outputs are numbers; what else is wrong with the data raises.

    It would be wrong for every measure, so it is said at once.
    """
    try:
        subject.losses("train")
        if subject.test is not None:
            subject.losses("test")
    except NotFiniteError:
        return False
    return True


def chosen(
    family: str, wanted: Chosen | None, thorough: bool, settings: dict[str, Any]
) -> Iterator[Measure]:
    """Yield measures or bounds that were asked for.

    Args:
        family: ``"measure"`` or ``"bound"``.
        wanted: Names or instances; None for all in the catalog.
        thorough: Whether all includes what is expensive.
        settings: Values for the fields of those that are given by name.
    """
    if wanted is None:
        known = [cls for cls in catalog(family).values() if issubclass(cls, Measure)]
        yield from (
            _instance(cls, settings) for cls in known if thorough or cls.cost != "expensive"
        )
        return
    for item in [wanted] if isinstance(wanted, str) else wanted:
        found = find(item, family) if isinstance(item, str) else item
        yield found if isinstance(found, Measure) else _instance(found, settings)


def _checks(wanted: Checks | None, settings: dict[str, Any]) -> list[Diagnosis]:
    named = catalog("diagnosis") if wanted is None else wanted
    found = [
        find(item, "diagnosis") if isinstance(item, str) else item
        for item in ([named] if isinstance(named, str) else named)
    ]
    return [item if isinstance(item, Diagnosis) else _instance(item, settings) for item in found]


def _instance(cls: Any, settings: dict[str, Any]) -> Any:
    """Return a spec with its defaults, except for the settings that it has a field for."""
    names = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in settings.items() if name in names})


def _measured(
    specs: Sequence[Measure], subject: Subject, bar: Progress, unknown: str, limit: float
) -> Iterator[tuple[Result, Costs]]:
    """Measure one after the other; none if a reason is given why all are unknown.

    With each result come the cached values that it used, and what these have cost. What is not
    cheap is left out once such measures took ``limit`` CPU seconds.
    """
    interrupted, spent = False, 0.0
    for spec in specs:
        subject.asked.clear()
        bar.begin(spec.name)
        late = TOO_LONG if spec.cost == "moderate" and spent > limit else ""
        reason = NOT_REACHED if interrupted else unknown or late
        try:
            result = _undefined(spec, reason) if reason else _tried(spec, subject)
            spent += result.cost.get("cpu_seconds", 0.0) if spec.cost == "moderate" else 0.0
        except KeyboardInterrupt:
            interrupted = True
            result = _undefined(spec, INTERRUPTED)
        yield result, dict(subject.asked)
        bar.advance()


def _before(
    specs: Sequence[Measure], measured: Sequence[tuple[Result, Costs]], subject: Subject
) -> list[float | None]:
    """Measure at the initial weights what takes little time, so that a value can be compared.

    A number says more next to the one that the same network has if nothing was learned. What a
    measure found in the cache, where another one had left it, has to be computed again.
    """
    found, spent = list[float | None](), 0.0
    other = untrained(subject)
    if other is not None:
        with contextlib.suppress(Exception):  # it may be refused or fail, and says so where needed
            _is_finite(other)  # nearly all need this pass over the data
    for spec, (result, used) in zip(specs, measured, strict=True):
        known = result.family == "measure" and result.value is not None
        if other is None or not known:
            found.append(None)
            continue
        again = [seconds for key, seconds in used.items() if not other.knows(key)]
        expected = max([result.cost.get("cpu_seconds", 0.0), *again])
        if expected > AGAIN or spent > ALTOGETHER:
            found.append(None)
            continue
        then = _tried(spec, other)
        spent += then.cost.get("cpu_seconds", 0.0)
        found.append(then.value)
    return found


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
