"""diagnose: run all diagnoses, correct for their number, and put what is wrong first."""

import dataclasses
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import torch

from mindgap.core import (
    Advice,
    Diagnosis,
    Finding,
    MindgapError,
    Progress,
    Remedy,
    Result,
    Results,
    Subject,
    Symptom,
    Undefined,
    catalog,
    find,
    holm,
    unknown_name,
    validated,
)
from mindgap.core.diagnosis import Severity, Stage
from mindgap.training.fitted import Fitted

FAMILY = 0.01  # chance with which any test of a healthy subject may accuse it, over all tests
UNSURE = 0.05  # corrected p-value beyond which a finding explains nothing that is more severe
MOST_REMEDIES = 3  # more than a reader would try
NO_NUMBERS_FOUND, NO_NUMBERS = "not-finite", "needs finite weights and outputs"
INTERRUPTED, NOT_REACHED = "interrupted", "not reached: interrupted"
_SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_STAGES: tuple[Stage, ...] = get_args(Stage)

Outcome = Literal["found", "nothing", "not applicable", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """What one diagnosis was good for.

    Args:
        name: The name of the diagnosis.
        summary: What it looks for.
        outcome: ``"found"``, ``"nothing"``, ``"not applicable"`` or ``"failed"``.
        reason: Why it does not apply, or failed.
        seconds: CPU seconds.
    """

    name: str
    summary: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosed:
    """All findings, what explains the failure first, and what was checked.

    ``print`` shows the findings. ``diagnosed["over-fitting"]`` is one of them.

    Args:
        findings: By severity, then from cause to symptom; explained ones last.
        checked: One entry per diagnosis.
    """

    findings: tuple[Finding, ...]
    checked: tuple[Checked, ...]

    def __getitem__(self, name: str) -> Finding:
        found = {finding.name: finding for finding in self.findings}
        if name not in found:
            raise unknown_name("finding", name, found)
        return found[name]

    def __str__(self) -> str:
        lines = [f"{finding.severity}: {finding.sentence}" for finding in self.findings]
        looked = sum(row.outcome in ("found", "nothing") for row in self.checked)
        return "\n".join(lines or [f"Nothing wrong found in {looked} checks."])


@validated
def diagnose(
    subject: Subject | Fitted,
    results: Results | None = None,
    *,
    diagnoses: Iterable[str | Diagnosis] | None = None,
    settings: Mapping[str, Any] | None = None,
    in_use: Collection[str] = (),
    progress: Progress | None = None,
) -> Diagnosed:
    """Look for everything that can be wrong, and put the cause before its symptoms.

    The p-values of all tests are corrected together by Holm's method, so that a healthy subject is
    accused of anything in at most one of a hundred cases. A finding whose corrected p-value is
    larger becomes a suspicion.

    Args:
        subject: A model with its loss and data, or what ``fit`` returned.
        results: What measures and bounds gave, by name.
        diagnoses: Names or instances; all if None.
        settings: Values for the fields of diagnoses, by name, such as ``stopped`` (why training
            ended early).
        in_use: Names of remedies that training used already, which are not advised.
        progress: A progress bar, which advances by one per diagnosis.

    Returns:
        The findings, the most severe first. Ctrl-C ends the search and keeps what was found.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 400)[:, None]
    >>> model = torch.nn.Linear(1, 1)
    >>> with torch.no_grad():
    ...     _ = model.weight.fill_(float("nan"))
    >>> subject = Subject(model, "mse", (x[::2], x[::2]), (x[1::2], x[1::2]))
    >>> print(diagnose(subject))
    wrong: The weights of 'weight' are not finite numbers.
    """
    subject = subject.subject() if isinstance(subject, Fitted) else subject
    specs = sorted(_chosen(diagnoses, settings or {}), key=lambda spec: _STAGES.index(spec.stage))
    found, checked, idle = list[Finding](), list[Checked](), ""
    for spec in specs:
        if progress is not None:
            progress.begin(spec.name)
        try:
            finding, row = (
                (None, _row(spec, "failed" if idle == NOT_REACHED else "not applicable", idle))
                if idle
                else _looked(spec, subject, results or {})
            )
        except KeyboardInterrupt:
            finding, row = None, _row(spec, "failed", INTERRUPTED)
            idle = NOT_REACHED
        checked.append(row)
        if finding is not None:
            found.append(finding)
            idle = NO_NUMBERS if finding.name == NO_NUMBERS_FOUND else idle
        if progress is not None:
            progress.advance()
    corrected = _corrected(found, specs, checked)
    mild = {finding.name for finding in found if finding.severity != "wrong"}
    mild |= {finding.name for finding in corrected if (finding.p_value or 0.0) > UNSURE}
    return Diagnosed(
        findings=tuple(
            _advised(finding, subject, in_use) for finding in _ordered(corrected, specs, mild)
        ),
        checked=tuple(checked),
    )


def skipped(diagnoses: Sequence[Diagnosis], reason: str) -> Diagnosed:
    """Tell of diagnoses that were not run.

    Args:
        diagnoses: All of them.
        reason: Why they were not.
    """
    return Diagnosed(findings=(), checked=tuple(_row(spec, "failed", reason) for spec in diagnoses))


def _chosen(
    wanted: Iterable[str | Diagnosis] | None, settings: Mapping[str, Any]
) -> Iterator[Diagnosis]:
    named = catalog("diagnosis") if wanted is None else wanted
    for item in named:
        cls = find(item, "diagnosis") if isinstance(item, str) else item
        if isinstance(cls, Diagnosis):
            yield cls
            continue
        fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        made = cls(**{name: value for name, value in settings.items() if name in fields})
        assert isinstance(made, Diagnosis)
        yield made


def _looked(
    spec: Diagnosis, subject: Subject, results: Mapping[str, Result]
) -> tuple[Finding | None, Checked]:
    started = time.process_time()
    try:
        missing = spec.missing(subject)
        if missing:
            return None, _row(spec, "not applicable", missing, started)
        finding = spec(subject, results)
    except (MindgapError, Undefined) as error:
        return None, _row(spec, "not applicable", str(error), started)
    except Exception as error:  # one broken diagnosis must not cost the others
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return None, _row(spec, "failed", told, started)
    return finding, _row(spec, "nothing" if finding is None else "found", "", started)


def _row(spec: Diagnosis, outcome: Outcome, reason: str, started: float | None = None) -> Checked:
    seconds = 0.0 if started is None else time.process_time() - started
    summary = spec.words().summary
    return Checked(name=spec.name, summary=summary, outcome=outcome, reason=reason, seconds=seconds)


def _corrected(
    found: Sequence[Finding], specs: Sequence[Diagnosis], checked: Sequence[Checked]
) -> list[Finding]:
    """Correct the p-values by Holm's method; tests that found nothing count with a p-value of one."""
    exact = {spec.name for spec in specs if spec.exact}
    tests = sum(row.outcome in ("found", "nothing") and row.name not in exact for row in checked)
    tested = [finding for finding in found if finding.p_value is not None]
    silent = max(tests - len(tested), 0)
    p_values = [min(finding.p_value or 0.0, 1.0) for finding in tested]
    corrected = dict(zip(map(id, tested), holm([*p_values, *[1.0] * silent]), strict=False))
    return [_judged(finding, corrected.get(id(finding))) for finding in found]


def _judged(finding: Finding, p_value: float | None) -> Finding:
    if p_value is None:
        return finding
    weak = finding.severity == "wrong" and p_value > FAMILY
    severity: Severity = "suspect" if weak else finding.severity
    return dataclasses.replace(finding, p_value=p_value, severity=severity)


def _ordered(
    found: Sequence[Finding], specs: Sequence[Diagnosis], mild: Collection[str]
) -> list[Finding]:
    """Put severe before mild and cause before symptom; what another finding explains comes last.

    What its own diagnosis calls no more than suspicious explains nothing that is sure, nor does what
    chance alone may give. A finding may itself propose its cause, which then counts before all others.
    """
    by_name = {spec.name: spec for spec in specs}
    rank = {
        finding.name: (
            _SEVERITIES.index(finding.severity),
            _STAGES.index(by_name[finding.name].stage),
            finding.p_value or 0.0,
            finding.name,
        )
        for finding in found
    }
    ordered = sorted(found, key=lambda finding: rank[finding.name])
    explained: dict[str, str] = {}
    for finding in ordered:
        known = rank.get(finding.explained_by) if finding.explained_by not in explained else None
        if known and known[0] <= rank[finding.name][0] and known[0] < _SEVERITIES.index("note"):
            explained[finding.name] = finding.explained_by
    for cause in ordered:
        if cause.name in explained or cause.severity == "note":
            continue
        for name in by_name[cause.name].explains & rank.keys():
            if cause.name not in mild or rank[name][0] >= rank[cause.name][0]:
                explained.setdefault(name, cause.name)
    told = [
        dataclasses.replace(finding, explained_by=explained.get(finding.name, ""))
        for finding in ordered
    ]
    return sorted(told, key=lambda finding: bool(finding.explained_by))


def _advised(finding: Finding, subject: Subject, in_use: Collection[str]) -> Finding:
    """Add the remedies that treat the symptom, fit and are not in use, the cheapest first.

    Remedies change how weights are trained: to who has none, such as a forest, none is advised.
    """
    if not any(True for _ in subject.model.parameters()):
        kept = tuple(advice for advice in finding.advice if not advice.remedy)
        return dataclasses.replace(finding, advice=kept)
    if finding.severity == "note" or finding.symptom is None or finding.explained_by:
        return finding
    named = {advice.remedy for advice in finding.advice} | set(in_use)
    remedies = [cls for cls in catalog("remedy").values() if issubclass(cls, Remedy)]
    sample = subject.train.take(torch.arange(1)).inputs
    fitting = [cls for cls in remedies if not cls().misfit(subject.task, sample)]
    treating = [cls for cls in fitting if finding.symptom in cls.treats and cls.name not in named]
    treating.sort(key=lambda cls: (cls.cost, len(cls.treats)))
    more = tuple(_suggestion(cls, finding.symptom) for cls in treating[:MOST_REMEDIES])
    return dataclasses.replace(finding, advice=finding.advice + more)


def _suggestion(cls: type[Remedy], symptom: Symptom) -> Advice:
    return Advice(text=f"{cls.words().summary} Against {symptom}.", remedy=cls.name)
