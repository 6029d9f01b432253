"""The pieces of a report: frozen, plain, and the same after a trip through JSON."""

import abc
import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from mindgap.core import (
    Advice,
    Chart,
    Cost,
    Direction,
    NotFiniteError,
    Result,
    Subject,
    plain,
    write_as,
)
from mindgap.core.bound import constant_error
from mindgap.core.plain import fields_of
from mindgap.ops.models.parameters import count

Tone = Literal["good", "warn", "bad", "neutral"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about the subject before anything clever is computed.

    ``baseline`` is the training error of the best constant prediction: the majority class, or the
    mean target. ``overlap`` is the share of test samples that also appear in the training data. In
    a regression the error is the loss. What a model without finite outputs leaves unknown is NaN.
    """

    name: str
    task: str
    loss: str
    train_samples: int
    test_samples: int
    parameters: int
    train_loss: float
    train_error: float
    baseline: float
    test_loss: float | None = None
    test_error: float | None = None
    overlap: float = 0.0
    initial: bool = False
    stopped: str = ""

    @property
    def rate(self) -> bool:
        """Whether the error is a share of wrong answers, to be shown as percent."""
        return self.task != "regression"

    @property
    def labels(self) -> bool:
        """Whether the error counts labels, of which a sample has several, and not samples."""
        return self.task == "multilabel"

    @property
    def scale(self) -> float:
        """What a gap is compared with: one for an error rate, the baseline's loss for a regression."""
        return 1.0 if self.rate else (self.baseline or self.train_error or 1.0)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The report in words: one headline, a few sentences, and what to do.

    ``kind`` is the name of the finding that the verdict is about, or what is said without one.
    """

    kind: str
    label: str
    tone: Tone
    headline: str
    sentences: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()

    def __str__(self) -> str:
        from mindgap.report.text import room_of, verdict

        return "\n".join(verdict(self, room_of(None)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """A result with the words of its spec, so that a saved report needs no spec to be drawn.

    ``untrained`` is the value at the weights from before training, where it is known.
    ``telling`` says that the measure stays the same under a rescaling of the weights that leaves the
    network's function as it is; one that does not can be made any number without a change of errors.
    """

    result: Result
    title: str
    summary: str
    formula: str = ""
    reading: str = ""
    assumes: str = ""
    direction: Direction = "none"
    cost: Cost = "cheap"
    cites: tuple[str, ...] = ()
    topic: str = ""
    untrained: float | None = None
    telling: bool = True

    @property
    def words(self) -> str:
        """All words of the spec, to see how it spells names."""
        return f"{self.title} {self.summary} {self.reading} {self.assumes}"

    @property
    def defined(self) -> bool:
        """Whether there is a value."""
        return self.result.value is not None

    @property
    def guarantees(self) -> bool:
        """Whether this is a bound that says something: valid and below the worst loss."""
        return self.defined and self.result.valid is True and self.result.vacuous is False

    @property
    def guarantees_model(self) -> bool:
        """Whether it does so for the model itself, not for one with noise on its weights."""
        return self.guarantees and not self.result.provenance.get("risk_of")


FIRST, OTHERS = "basic", "others"


def by_topic(cards: Sequence[Card]) -> list[tuple[str, list[Card]]]:
    """Group cards by their topic: the basic ones first, those without a topic last.

    Within a topic the telling ones come first, and of those the gap.

    >>> result = Result(name="gap", family="measure", value=1.0)
    >>> cards = [Card(result=result, title=t, summary="", topic=t) for t in ("norms", "", "basic")]
    >>> [(topic, len(group)) for topic, group in by_topic(cards)]
    [('Basic', 1), ('Norms', 1), ('Others', 1)]
    """
    groups: dict[str, list[Card]] = {}
    for card in cards:
        groups.setdefault(card.topic or OTHERS, []).append(card)
    order = sorted(groups, key=lambda topic: (topic == OTHERS, topic != FIRST, topic))
    return [(topic.capitalize(), sorted(groups[topic], key=_least_telling)) for topic in order]


def _least_telling(card: Card) -> tuple[bool, bool]:
    return not card.telling, card.result.name != "gap"


class Answer(abc.ABC):
    """What a job found; ``print`` shows its text.

    A subclass is a dataclass with a verdict, and writes ``text``; one that has samples or layers
    writes ``csv``. Its ``template`` is the page, and ``drawn`` says where the charts are.
    """

    template: ClassVar[str]
    charts: tuple[Chart, ...]

    @property
    @abc.abstractmethod
    def verdict(self) -> Verdict:
        """The result in words."""

    @abc.abstractmethod
    def text(self) -> str:
        """Write the answer for a terminal."""

    def drawn(self) -> dict[str, Sequence[Chart]]:
        """Return the charts by the places in the template."""
        return {"charts": self.charts}

    def page(self) -> str:
        """Write the answer as a whole page."""
        from mindgap.report import html
        from mindgap.report.draw import draw_all

        places = {place: draw_all(charts, place) for place, charts in self.drawn().items()}
        return html.render(self.template, found=self, verdict=self.verdict, **places)

    def csv(self) -> str | None:
        """Write one line per sample or layer; None if the answer is about neither."""
        return None

    def further(self) -> dict[str, Any]:
        """Return what follows from the fields and belongs to the plain data."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the charts and without a model."""
        fields = fields_of(self)
        for name in ("charts", "model"):
            fields.pop(name, None)
        found: dict[str, Any] = plain({**fields, **self.further()}, fallback=repr)
        return found

    def __str__(self) -> str:
        return self.text()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page (.html), all numbers (.json) or one line per sample or layer (.csv).

        Args:
            path: The file to write.
        """
        makers: dict[str, Callable[[], str]] = {
            ".html": self.page,
            ".json": lambda: json.dumps(self.to_dict(), indent=2, allow_nan=False),
        }
        lines = self.csv()
        if lines is not None:
            makers[".csv"] = lambda: lines
        return write_as(path, makers)
