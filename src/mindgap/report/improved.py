"""Improved: what ``mindgap improve`` found, as plain data with its words, table and charts."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from mindgap.core import (
    Chart,
    InputError,
    Interval,
    Table,
    check_types,
    parsed,
    plain,
    unworded,
    write_as,
)
from mindgap.core.plain import fields_of
from mindgap.report.parts import Tone
from mindgap.report.wording import amount, both_ends, change

SCHEMA = 1
Role = Literal["baseline", "control", "finalist", "reference"]
ROLES = {"baseline": "as given", "control": "retuned control"}
STAGES = {
    "retune": "retuning",
    "rung 1": "first rung",
    "rung 2": "second rung",
    "rung 3": "third rung",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """An arm on test data.

    Args:
        arm: The name of the arm.
        role: ``"baseline"`` is the recipe as given, ``"control"`` the retuned one.
        error: Mean test error.
        cost: Time of a training as a multiple of the recipe's as given.
        gain: How much lower the error is than the control's; the control's gain is over the
            baseline.
        interval: Its 95 % interval over seeds and test samples; of a reference, over samples.
        p_value: One-sided p-value, corrected for all finalists.
        word: ``"helps"``, ``"harms"``, ``"could not tell"`` or ``"no difference"``; empty where
            nothing is tested.
        detectable: The gain that would have been found with a power of 0.8.
        short: What a clearer answer lacks: ``"seeds"`` or ``"samples"``.
        median: Median over seeds of the test error.
        worst: The largest test error of a seed.
    """

    arm: str
    role: Role
    error: float
    cost: float = 1.0
    gain: float | None = None
    interval: Interval | None = None
    p_value: float | None = None
    word: str = ""
    detectable: float | None = None
    short: str = ""
    median: float | None = None
    worst: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passage:
    """What became of an arm in one stage of the search.

    Args:
        stage: ``"retune"`` or ``"rung 1"`` to ``"rung 3"``.
        arm: The name of the arm.
        group: What it tries.
        score: Mean validation error; None if it could not be trained.
        seeds: Number of seeds behind it.
        kept: Whether it went on.
        reason: Why, or why not.
        fold: Number of the outer fold; zero if there are none.
    """

    stage: str
    arm: str
    group: str
    score: float | None
    seeds: int
    kept: bool
    reason: str
    fold: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Improved:
    """Whether anything tried improves a recipe, by how much, and at what cost.

    ``print`` shows the verdict and the table; ``save`` writes .html, .json, .md or .txt.

    Args:
        title: What was to be improved.
        word: ``"helps"``, ``"retuning helps"``, ``"could not tell"``, ``"no difference"`` or
            ``"harms"``.
        headline: The verdict as one sentence.
        sentences: What supports it, the most important first.
        claims: Which population each interval speaks of, and what was corrected for what.
        metric: ``"test error"``, or ``"test loss"`` in a regression.
        rate: Whether the metric is a share of wrong answers.
        rows: Baseline, control, finalists and references.
        log: Who was dropped when and why, on validation data.
        chosen: The name of the arm to use.
        code: How to train it, to paste.
        seeds: Number of fresh seeds of the confirmation, in every outer fold.
        samples: Number of test samples, in all outer folds.
        validation: Number of validation samples.
        trainings: Trainings by purpose, in units of the recipe as given.
        trials: Number of trainings by group in the search.
        findings: What diagnoses found on training and validation data, as sentences.
        skipped: Remedies that did not fit, and why.
        provenance: Versions, settings and the date.
        folds: Number of outer folds; one if there is a test set.
    """

    title: str
    word: str
    headline: str
    sentences: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    metric: str = "test error"
    rate: bool = True
    rows: tuple[Row, ...] = ()
    log: tuple[Passage, ...] = ()
    chosen: str = ""
    code: str = ""
    seeds: int = 0
    samples: int = 0
    validation: int = 0
    trainings: Mapping[str, float] = dataclasses.field(default_factory=dict)
    trials: Mapping[str, int] = dataclasses.field(default_factory=dict)
    findings: tuple[str, ...] = ()
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    folds: int = 1

    def __getitem__(self, arm: str) -> Row:
        return next(row for row in self.rows if row.arm == arm)

    def __str__(self) -> str:
        lines = [self.headline, *(f"· {text}" for text in self.sentences)]
        return "\n".join([*lines, "", str(self.table()), "", self.code])

    @property
    def tone(self) -> Tone:
        """The color of the verdict."""
        if self.word in ("helps", "retuning helps"):
            return "good"
        return "bad" if self.word == "harms" else "neutral"

    def table(self) -> Table:
        """Return arm × (error, change against the control, interval, corrected p, cost)."""
        p_value = "p (Holm)" if self.folds == 1 else "p"
        return Table(
            title=f"{self.title}: {self.metric} on {self.samples:,} samples",
            columns=("arm", self.metric, "gain", "95 % interval", p_value, "verdict", "cost"),
            rows=tuple(self._cells(row) for row in self.rows),
            notes=self.claims,
            charts=self.charts(),
        )

    def _cells(self, row: Row) -> tuple[Any, ...]:
        return (
            f"{row.arm} ({ROLES[row.role]})" if row.role in ROLES else row.arm,
            amount(row.error, self.rate),
            None if row.gain is None else change(row.gain, self.rate),
            None if row.interval is None else both_ends(row.interval, self.rate),
            None if row.p_value is None else f"{row.p_value:.2g}",
            row.word or None,
            f"{row.cost:.2g}×",
        )

    def charts(self) -> tuple[Chart, ...]:
        """Draw the gains, and the race of every outer fold."""
        from mindgap.report.pages.improve import charts_of

        return charts_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        return {"schema": SCHEMA, "kind": "improved", **plain(fields_of(self), fallback=str)}

    def to_json(self) -> str:
        """Return strict JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        if data.get("schema") != SCHEMA or data.get("kind") != "improved":
            raise InputError(
                f"The answer of improve must have schema {SCHEMA} and kind 'improved', got "
                f"{data.get('schema')!r} and {data.get('kind')!r}. Pass a file that Improved.save "
                "wrote, or upgrade mindgap."
            )
        try:
            fields = unworded({k: v for k, v in data.items() if k not in ("schema", "kind")})
            for name in ("sentences", "claims", "findings"):
                fields[name] = tuple(fields.get(name, ()))
            fields["rows"] = tuple(_row(row) for row in fields.get("rows", ()))
            fields["log"] = tuple(Passage(**row) for row in fields.get("log", ()))
            found = cls(**fields)
            check_types(found, cls, "improved")
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(
                "The answer of improve must be one that mindgap wrote, got damaged data "
                f"({error!s:.200}). Save it again."
            ) from error
        return found

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back what :meth:`to_json` wrote."""
        data = parsed(text)
        return cls.from_dict(data if isinstance(data, Mapping) else {})

    def to_markdown(self) -> str:
        """Return verdict, table and code."""
        blocks = [
            f"# {self.title}",
            f"**{self.headline}**",
            "\n".join(f"- {text}" for text in self.sentences),
            self.table().to_markdown(),
            f"```python\n{self.code}\n```" if self.code else "",
        ]
        return "\n\n".join(block for block in blocks if block) + "\n"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the answer whole or not at all.

        Args:
            path: Where to; the suffix .html, .json, .md or .txt says how.
        """
        makers = {
            ".html": lambda: _page(self),
            ".json": self.to_json,
            ".md": self.to_markdown,
            ".txt": lambda: f"{self}\n",
        }
        return write_as(path, makers)


def _page(improved: Improved) -> str:
    from mindgap.report.pages.improve import improve_html

    return improve_html(improved)


def _row(data: Mapping[str, Any]) -> Row:
    interval = data.get("interval")
    return Row(**{**data, "interval": None if interval is None else Interval(**interval)})
