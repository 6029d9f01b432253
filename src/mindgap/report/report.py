"""Report: plain data that holds all a reader needs, made from a subject and its results.

Frozen dataclasses to strict JSON data and back, guided by their annotations.
"""

import dataclasses
import datetime as dt
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
from mindgap.core import InputError, Measure, Result, Subject, plain, unknown_name, write_whole
from mindgap.core.plain import fields_of
from mindgap.measures.basic.gap import Gap
from mindgap.report import html, markdown, wording
from mindgap.report import text as terminal
from mindgap.report.parts import Card, Classes, Facts, Layers, Sample, Spread, Verdict
from mindgap.report.sections.label_variance.subject import variance_of
from mindgap.report.sections.label_variance.summary import Variance
from mindgap.report.sections.samples import hardest as hardest_samples
from mindgap.report.sections.spread import classes_of, spread_of
from mindgap.report.verdict.facts import facts_of
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
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast("type", hint), item)
    return float(item) if hint is float else item


SCHEMA = 1
BY_LAYER = (
    "by_tensor",
    "by_layer",
)  # where a measure's details say what each part of the model contributes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The verdict, the facts, every result with its words, the curves, the hardest samples and where labels vary.

    ``print(report)`` gives a table, ``report.save("report.html")`` a page that needs nothing else,
    and a ``.json`` file can be read back. ``report["gap"]`` is one result.
    """

    title: str
    created: str
    verdict: Verdict
    facts: Facts
    gap: Result
    cards: tuple[Card, ...] = ()
    curves: tuple[Mapping[str, float], ...] = ()
    layers: tuple[Layers, ...] = ()
    classes: Classes | None = None
    spread: Spread | None = None
    samples: tuple[Sample, ...] = ()
    variance: Variance | None = None
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def measures(self) -> tuple[Card, ...]:
        """The cards of the measures."""
        return tuple(card for card in self.cards if card.result.family != "bound")

    @property
    def bounds(self) -> tuple[Card, ...]:
        """The cards of the bounds."""
        return tuple(card for card in self.cards if card.result.family == "bound")

    def __getitem__(self, name: str) -> Result:
        found = {card.result.name: card.result for card in reversed(self.cards)}
        if name not in found:
            raise unknown_name("result", name, found)
        return found[name]

    def __str__(self) -> str:
        return terminal.text(self)

    def _repr_html_(self) -> str:
        return html.notebook(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
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
            return decode(cls, data)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(
                f"A report must be one that mindgap wrote, got damaged data ({error}). Save it "
                "again."
            ) from error

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back what :meth:`to_json` wrote."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InputError(
                f"A report must be JSON, got other text ({error}). Pass a file saved as .json."
            ) from error
        return cls.from_dict(data if isinstance(data, Mapping) else {})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report whole or not at all; the suffix .html, .json, .md or .txt says how."""
        writers = {
            ".html": html.report_page,
            ".json": Report.to_json,
            ".md": markdown.text,
            ".txt": _plain_text,
        }
        suffix = Path(path).suffix.lower()
        if suffix not in writers:
            raise InputError(
                f"A report's path must end in {', '.join(writers)}, got {os.fspath(path)!r}. "
                "Rename it."
            )
        return write_whole(path, writers[suffix](self))


def _plain_text(report: Report) -> str:
    return terminal.text(report, width=terminal.WIDEST) + "\n"


def build(
    subject: Subject,
    outcomes: Sequence[tuple[Measure, Result]],
    *,
    hardest: int = 24,
    level: float = 0.95,
    stopped: str = "",
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Put results, facts, curves and hardest samples of a subject together, and judge."""
    cards = tuple(card_of(measure, result) for measure, result in outcomes)
    gap = next((card.result for card in cards if card.result.name == Gap.name), None) or Gap(
        level=level
    )(subject)
    facts = facts_of(subject, stopped)
    return Report(
        title=subject.name,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        verdict=judge(facts, gap, cards, subject.history),
        facts=facts,
        gap=_as_saved(gap),
        cards=cards,
        curves=tuple(
            {name: float(value) for name, value in row.items()} for row in subject.history
        ),
        layers=layers_of(cards),
        classes=classes_of(subject),
        spread=spread_of(subject),
        samples=hardest_samples(subject, hardest),
        variance=variance_of(subject, hardest),
        provenance={**versions(), "settings": plain(settings or {}, fallback=str)},
    )


def card_of(measure: Measure, result: Result) -> Card:
    """A result with the words of its spec."""
    words = measure.words()
    return Card(
        result=_as_saved(result),
        title=wording.title(measure.name),
        summary=words.summary,
        formula=words.formula,
        reading=words.reading,
        assumes=words.assumes,
        direction=measure.direction,
        cost=measure.cost,
        cites=tuple(measure.cites),
    )


def _as_saved(result: Result) -> Result:
    """The result as it would come back from JSON, so that a saved report equals the one in hand."""
    return Result.from_dict(result.to_dict())


def layers_of(cards: Sequence[Card]) -> tuple[Layers, ...]:
    """What the measures say of every tensor or layer."""
    found = [(card.title, card.result.details.get(key)) for card in cards for key in BY_LAYER]
    return tuple(
        Layers(
            title=title,
            names=tuple(map(str, parts)),
            values=tuple(float(value) for value in parts.values()),
        )
        for title, parts in found
        if isinstance(parts, Mapping)
        and parts
        and all(isinstance(value, int | float) for value in parts.values())
    )


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    return {
        "mindgap": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
    }
