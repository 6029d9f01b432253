"""Report: plain data that holds all a reader needs, made from a subject and its results."""

import dataclasses
import datetime as dt
import inspect
import json
import os
import platform
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import torch

from mindgap._version import __version__
from mindgap.core import (
    Finding,
    InputError,
    Measure,
    Result,
    Subject,
    plain,
    unknown_name,
    write_as,
    write_whole,
)
from mindgap.core.plain import check_types, fields_of, parsed
from mindgap.diagnoses.diagnose import INTERRUPTED, Checked, Diagnosed
from mindgap.report import text as terminal, wording
from mindgap.report.parts import Card, Facts, Verdict, facts_of
from mindgap.report.verdict import findings as told
from mindgap.report.verdict.verdict import judge

T = TypeVar("T")


def decode(cls: type[T], data: Any) -> T:
    """Read back what ``plain`` wrote; fields that this version does not know are left out."""
    hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: _value(hints[name], item) for name, item in data.items() if name in known})


def _value(hint: Any, item: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return None if item is None else _value(arguments[0], item)
    if origin is tuple:
        return tuple(_value(arguments[0], part) for part in item)
    if origin is Mapping:
        return {key: _value(arguments[1], part) for key, part in item.items()}
    if hint is Result:
        return Result.from_dict(item)
    if hint is Finding:
        known = {field.name for field in dataclasses.fields(Finding)}
        return Finding.from_dict({name: part for name, part in item.items() if name in known})
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast("type", hint), item)
    return float(item) if hint is float else item


SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The verdict, what was found, every result with its words and charts, and the curves.

    ``print(report)`` gives tables, a notebook shows it with its charts, and ``report.save`` writes
    a page that needs nothing else. ``report["gap"]`` is one result, ``report.findings[0]`` what is
    wrong, and ``report.suspects`` all samples to look at.

    Args:
        title: What was examined.
        created: When, in ISO 8601.
        verdict: A headline, the sentences that support it, and what to do.
        facts: Sizes, errors and the baseline.
        gap: The generalization gap.
        findings: What diagnoses found, what explains the failure first.
        checked: What each diagnosis was good for.
        cards: Results of measures and bounds, each with the words of its spec.
        curves: One record per epoch of training.
        provenance: Versions and settings.

    >>> import torch
    >>> from mindgap import Subject, examine
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> subject = Subject(torch.nn.Linear(1, 1), "mse", (x[::2], x[::2]), (x[1::2], x[1::2]))
    >>> report = examine(subject, measures=["gap", "parameter-count"], bounds=())
    >>> float(report["parameter-count"]), [chart.title for chart in report["gap"].charts]
    (2.0, ['Training error, test error and the gap between them'])
    """

    title: str
    created: str
    verdict: Verdict
    facts: Facts
    gap: Result
    findings: tuple[Finding, ...] = ()
    checked: tuple[Checked, ...] = ()
    cards: tuple[Card, ...] = ()
    curves: tuple[Mapping[str, float], ...] = ()
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the measuring or the checks."""
        reasons = [card.result.reason for card in self.cards] + [row.reason for row in self.checked]
        return INTERRUPTED in reasons

    @property
    def measures(self) -> tuple[Card, ...]:
        """The cards of the measures."""
        return tuple(card for card in self.cards if card.result.family != "bound")

    @property
    def bounds(self) -> tuple[Card, ...]:
        """The cards of the bounds."""
        return tuple(card for card in self.cards if card.result.family == "bound")

    @property
    def suspects(self) -> list[dict[str, Any]]:
        """All samples to look at: the finding, the split, the place in it, and what is known."""
        return told.suspect_rows(self.findings)

    def __getitem__(self, name: str) -> Result:
        found = {card.result.name: card.result for card in reversed(self.cards)}
        if name not in found:
            raise unknown_name("result", name, found)
        return found[name]

    def __str__(self) -> str:
        return terminal.text(self)

    def _repr_html_(self) -> str:
        from mindgap.report import html

        return html.notebook(self)

    def with_settings(self, **more: Any) -> Self:
        """Return the same report with more settings to print."""
        settings = {**self.provenance.get("settings", {}), **more}
        return dataclasses.replace(self, provenance={**self.provenance, "settings": settings})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        return {"schema": SCHEMA, "kind": "report", **plain(fields_of(self), fallback=str)}

    def to_json(self) -> str:
        """Strict JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        if data.get("schema") != SCHEMA or data.get("kind") != "report":
            raise InputError(
                f"A report must have schema {SCHEMA} and kind 'report', got "
                f"{data.get('schema')!r} and "
                f"{data.get('kind')!r}. Pass a file that Report.save wrote, or upgrade mindgap."
            )
        try:
            report = decode(cls, data)
            check_types(report, cls, "report")
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(
                f"A report must be one that mindgap wrote, got damaged data ({error!s:.200}). Save "
                "it again."
            ) from error
        return report

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back what :meth:`to_json` wrote."""
        try:
            data = parsed(text)
        except InputError as error:
            raise InputError(
                f"A report must be JSON, got other text ({error}). Pass a file saved as .json."
            ) from error
        return cls.from_dict(data if isinstance(data, Mapping) else {})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report whole or not at all.

        Args:
            path: Where to; the suffix .html, .json, .md or .txt says how.

        Returns:
            The path of the file.
        """
        makers = {
            ".html": lambda: _page(self),
            ".json": self.to_json,
            ".md": lambda: _markdown(self),
            ".txt": lambda: terminal.text(self, width=terminal.WIDEST) + "\n",
        }
        return write_as(path, makers)

    def save_suspects(self, path: str | os.PathLike[str]) -> Path:
        """Write all samples to look at as CSV, whole or not at all.

        Args:
            path: Where to.

        Returns:
            The path of the file.
        """
        return write_whole(path, told.suspects_csv(self.suspects))


def _page(report: Report) -> str:
    # Pages, templates and the plotting library are imported when a page is saved.
    from mindgap.report import html

    return html.report_page(report)


def _markdown(report: Report) -> str:
    from mindgap.report import markdown

    return markdown.text(report)


def build(
    subject: Subject,
    outcomes: Sequence[tuple[Measure, Result]],
    *,
    gap: Result,
    overlap: Result,
    before: Sequence[float | None] | None = None,
    diagnosed: Diagnosed | None = None,
    stopped: str = "",
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Put the results of a subject together, and judge.

    Args:
        subject: What was measured.
        outcomes: Measures and bounds with their results.
        gap: The generalization gap.
        overlap: The share of test samples that are training samples.
        before: The value of every outcome at the weights from before training, where known.
        diagnosed: What diagnoses found, on which the verdict rests.
        stopped: Why training ended before its time.
        settings: What to print as settings.
    """
    values = before or [None] * len(outcomes)
    cards = tuple(
        dataclasses.replace(_card(*outcome), untrained=value)
        for outcome, value in zip(outcomes, values, strict=True)
    )
    facts = facts_of(subject, overlap.value or 0.0, stopped)
    found, checked = (diagnosed.findings, diagnosed.checked) if diagnosed else ((), ())
    findings = tuple(Finding.from_dict(finding.to_dict()) for finding in found)
    return Report(
        title=subject.name,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        verdict=judge(facts, gap, cards, findings, checked),
        facts=facts,
        gap=_as_saved(gap),
        findings=findings,
        checked=checked,
        cards=cards,
        curves=tuple(
            {name: float(value) for name, value in row.items()} for row in subject.history
        ),
        provenance={**versions(), "settings": plain(settings or {}, fallback=str)},
    )


def _card(measure: Measure, result: Result) -> Card:
    """Return a result with the words of its spec."""
    words = measure.words()
    return Card(
        result=_as_saved(result),
        title=wording.title(measure.name, _documentation(type(measure))),
        summary=words.summary,
        formula=words.formula,
        reading=words.reading,
        assumes=words.assumes,
        direction=measure.direction,
        cost=measure.cost,
        cites=tuple(measure.cites),
        topic=_topic(type(measure)),
        telling="relu-rescaling" in measure.invariant_to,
    )


def _topic(cls: type[Measure]) -> str:
    """Return the folder of a measure of ours, which is its topic; a plug-in's has none."""
    *_, package, topic, _ = ("", "", *cls.__module__.split("."))
    return topic if package == "measures" and cls.__module__.startswith("mindgap.") else ""


def _documentation(cls: type[Measure]) -> str:
    return f"{inspect.getdoc(inspect.getmodule(cls))} {inspect.getdoc(cls)}"


def _as_saved(result: Result) -> Result:
    """Return the result as JSON would give it back, so that a saved report equals this one."""
    return Result.from_dict(result.to_dict())


def versions() -> dict[str, str]:
    """Return what the numbers were computed with."""
    return {
        "mindgap": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
    }
