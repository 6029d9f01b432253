"""Several subjects side by side: which differ on the test data, and all numbers in columns."""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from mindgap.core import Advice, Bar, InputError, Interval, Series, plain, write_as
from mindgap.core.plain import check_types, fields_of
from mindgap.diagnoses.diagnose import NO_NUMBERS_FOUND
from mindgap.report import text as terminal, wording
from mindgap.report.parts import Card, Tone, Verdict
from mindgap.report.report import Report, decode
from mindgap.report.verdict.verdict import is_held_out, models_of

SCHEMA = 1
LONGEST = 18  # characters of a name as the head of a column
PAIR_HEAD = ("pair", "test {what}", "interval", "p", "conclusion")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two subjects compared.

    Args:
        first: Name of one.
        second: Name of the other.
        difference: Test error of the first minus that of the second.
        interval: Its confidence interval; those of all pairs hold at once.
        p_value: How likely chance alone gives such a difference, corrected for all pairs.
        paired: Whether both were judged on the same samples.
        samples: The number of test samples, the smaller one if they differ.
        differs: Whether a difference is shown.
    """

    first: str
    second: str
    difference: float
    interval: Interval
    p_value: float
    paired: bool
    samples: int
    differs: bool = False

    @property
    def better(self) -> str:
        """The name of the one with the lower test error, or empty if no difference is shown."""
        if not self.differs:
            return ""
        return self.first if self.difference < 0 else self.second


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Several reports, and which of their subjects differ on the test data.

    ``print`` gives a table, and ``save`` writes .html, .json, .md or .txt.

    Args:
        title: What was compared.
        created: When, in ISO 8601.
        verdict: Which differ, and where.
        reports: One report per subject.
        pairs: Every two subjects that could be compared.
        provenance: Versions and settings.
    """

    title: str
    created: str
    verdict: Verdict
    reports: tuple[Report, ...]
    pairs: tuple[Pair, ...] = ()
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        from mindgap.report import html

        return html.framed(page(self), height=800)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        data = plain({**fields_of(self), "reports": ()}, fallback=str)
        reports = [report.to_dict() for report in self.reports]
        return {"schema": SCHEMA, "kind": "comparison", **data, "reports": reports}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        if data.get("schema") != SCHEMA or data.get("kind") != "comparison":
            raise InputError(
                f"A comparison must have schema {SCHEMA} and kind 'comparison', got "
                f"{data.get('schema')!r} and {data.get('kind')!r}. Pass what Comparison.save wrote."
            )
        try:
            found = decode(cls, data)
            check_types(found, cls, "comparison")
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(
                "A comparison must be one that mindgap wrote, got damaged data "
                f"({error!s:.200}). Save it again."
            ) from error
        return found

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the comparison whole or not at all.

        Args:
            path: Where to; the suffix .html, .json, .md or .txt says how.

        Returns:
            The path of the file.
        """
        makers = {
            ".html": lambda: page(self),
            ".json": lambda: (
                json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False, indent=1) + "\n"
            ),
            ".md": lambda: markdown(self),
            ".txt": lambda: text(self, terminal.WIDEST) + "\n",
        }
        return write_as(path, makers)


KINDS: Mapping[str, tuple[str, Tone]] = {
    "not comparable": ("Not comparable", "neutral"),
    "unfair": ("Not a fair comparison", "bad"),
    "no difference": ("No difference shown", "neutral"),
    "tie": ("No single best", "neutral"),
    "difference": ("Difference shown", "good"),
}
SAME_TEST = Advice(text="Pass test=(inputs, targets), the same for all.")
MODELS_NOT_RECIPES = Advice(
    text="This compares models, not ways to train: another seed gives another model. Train several "
    "seeds with mindgap.ensemble to compare recipes."
)


def judge(reports: Sequence[Report], pairs: Sequence[Pair]) -> Verdict:
    """Say which subjects differ in their test error; nothing is called lower without a test.

    Args:
        reports: One per subject, titled with its name.
        pairs: The comparisons, with corrected p-values.
    """
    unfair = [report for report in reports if _is_voided(report)]
    advice: tuple[Advice, ...]
    if not pairs:
        kind, advice = "not comparable", (SAME_TEST,)
        headline = "These models cannot be compared: fewer than two have errors on test data."
    elif unfair:
        kind, advice, bad = "unfair", unfair[0].verdict.advice, unfair[0]
        headline = f"The test errors cannot be compared yet. {bad.title}: {bad.verdict.headline}"
    else:
        advice = (MODELS_NOT_RECIPES,)
        kind, headline = _difference(reports, pairs)
    label, tone = KINDS[kind]
    sentences = tuple(filter(None, [_basis(reports, pairs), *_problems(reports)]))
    return Verdict(
        kind=kind, label=label, tone=tone, headline=headline, sentences=sentences, advice=advice
    )


def _difference(reports: Sequence[Report], pairs: Sequence[Pair]) -> tuple[str, str]:
    """Return the kind of the verdict and its headline."""
    facts = reports[0].facts
    what = "error" if facts.rate else "loss"
    errors = {report.title: report.facts.test_error or 0.0 for report in reports}
    known = dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second))
    best, *others = sorted(known, key=lambda name: errors[name])
    equal = [
        pair.second if pair.first == best else pair.first
        for pair in pairs
        if best in (pair.first, pair.second) and not pair.differs
    ]
    lowest = f"{best} has the lowest test {what}"
    if not any(pair.differs for pair in pairs):
        return (
            "no difference",
            f"No difference in test {what} is shown between {_and(list(known))}.",
        )
    if equal:
        size = wording.error(facts, errors[best])
        return "tie", f"{lowest}, {size}, but no difference from {_and(equal)} is shown."
    rest = ", ".join(f"{name} {wording.error(facts, errors[name])}" for name in others)
    return "difference", f"{lowest}: {wording.error(facts, errors[best])} ({rest})."


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _basis(reports: Sequence[Report], pairs: Sequence[Pair]) -> str:
    """Say how the test errors were compared."""
    if not pairs:
        return ""
    several = f", corrected for {len(pairs)} pairs (Holm)" if len(pairs) > 1 else ""
    if not all(pair.paired for pair in pairs):
        return (
            "The test data are not the same for all, so a difference may come from the data as "
            f"well as from the model. The tests are unpaired there{several}."
        )
    classes = reports[0].facts.task == "classification"
    test = "McNemar's exact test" if classes else "a sign test and Student's test"
    samples = wording.count(pairs[0].samples, "test sample")
    return f"All were judged on the same {samples}, and compared one by one: {test}{several}."


def _problems(reports: Sequence[Report]) -> Iterator[str]:
    """Say what is wrong with single subjects."""
    for report in reports:
        if report.verdict.tone in ("bad", "warn"):
            yield f"{report.title}: {report.verdict.headline}"


def _is_voided(report: Report) -> bool:
    """Tell whether a finding makes the test error say nothing."""
    told = {f.name for f in report.findings if f.voids and f.severity == "wrong"}
    return bool(told - {NO_NUMBERS_FOUND})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One quantity of all subjects.

    Args:
        name: What it is.
        cells: Its value for every subject.
        better: Which values are claimed to generalize better.
        group: Where it belongs.
    """

    name: str
    cells: tuple[str, ...]
    better: str = ""
    group: str = "Errors"


def rows(found: Comparison) -> list[Row]:
    """Return what is shown in columns: verdict, errors, gap, measures and bounds."""
    reports = found.reports
    what = "error" if reports[0].facts.rate else "loss"
    head = [
        Row(name="verdict", cells=tuple(report.verdict.label for report in reports)),
        Row(name=f"training {what}", cells=tuple(map(_train, reports)), better="lower"),
        Row(name=f"test {what}", cells=tuple(map(_test, reports)), better="lower"),
        Row(name="gap", cells=tuple(map(_gap, reports)), better="lower"),
    ]
    return [*head, *_results(reports, "measure"), *_results(reports, "bound")]


def _train(report: Report) -> str:
    return wording.error(report.facts, report.facts.train_error)


def _test(report: Report) -> str:
    gap, error = report.gap.interval, wording.error(report.facts, report.facts.test_error)
    if gap is None:
        return error
    known = report.facts.train_error
    ends = Interval(low=gap.low + known, high=gap.high + known)
    return f"{error} ({wording.ends(report.facts, ends, 'to')})"


def _gap(report: Report) -> str:
    size = wording.gap(report.facts, report.gap.value, "points")
    if report.gap.interval is None:
        return size
    return f"{size} ({wording.ends(report.facts, report.gap.interval, 'to')})"


def _results(reports: Sequence[Report], family: str) -> Iterator[Row]:
    cards = [
        {card.result.name: card for card in report.cards if card.result.family == family}
        for report in reports
    ]
    for name in dict.fromkeys(name for known in cards for name in known):
        own = [known.get(name) for known in cards]
        if name == "gap" or not any(card and card.defined for card in own):
            continue
        yield Row(
            name=name if family == "measure" else f"{name} at most",
            cells=tuple(_value(card) for card in own),
            better=next(card.direction for card in own if card).replace("none", ""),
            group="Measures" if family == "measure" else "Bounds",
        )


def _value(card: Card | None) -> str:
    if card is None or not card.defined:
        return "—"
    if card.result.family != "bound":
        return wording.number(card.result.value)
    told = terminal.bound_verdict(card).partition(":")[0]
    if told == "holds" and is_held_out(card):
        told = "for all" if models_of(card) > 1 else "one alone"
    return f"{wording.rounded_up(card.result.value)} ({told})"


def _pair_rows(
    found: Comparison, longest: int = 200
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the cells of the table of pairs, with names of so many characters."""
    facts = found.reports[0].facts
    cells: list[tuple[str, ...]] = [
        (
            f"{_short(pair.first, longest)} − {_short(pair.second, longest)}",
            wording.gap(facts, pair.difference, "points"),
            wording.ends(facts, pair.interval, "to"),
            wording.p_value(pair.p_value).removeprefix("= "),
            f"{_short(pair.better, longest)} is lower" if pair.better else "no difference shown",
        )
        for pair in found.pairs
    ]
    what = "error" if facts.rate else "loss"
    return tuple(name.format(what=what) for name in PAIR_HEAD), cells


def chart(found: Comparison) -> list[Bar]:
    """Return the test errors next to each other, with their intervals."""
    known = [report for report in found.reports if report.gap.interval is not None]
    if not known:
        return []
    facts = known[0].facts
    spread = [
        [report.facts.train_error + getattr(report.gap.interval, end) for report in known]
        for end in ("low", "high")
    ]
    names = [report.title for report in known]
    what = "error" if facts.rate else "loss"
    return [
        Bar(
            title=f"Training and test {what}",
            caption="Whiskers are the intervals of the test data, each for one model alone. For "
            "the same test data the table of pairs is sharper.",
            y_label="error rate" if facts.rate else "loss",
            percent=facts.rate,
            horizontal=True,
            series=[
                Series(name="train", x=names, y=[report.facts.train_error for report in known]),
                Series(
                    name="test",
                    x=names,
                    y=[report.facts.test_error or 0.0 for report in known],
                    low=spread[0],
                    high=spread[1],
                ),
            ],
        )
    ]


def text(found: Comparison, width: int | None = None) -> str:
    """Write the verdict, the pairs and the columns for a terminal."""
    room = terminal.room_of(width)
    head, cells = _pair_rows(found, LONGEST)
    blocks = [
        [found.title, "═" * min(len(found.title), room)],
        terminal.verdict(found.verdict, room),
        terminal.table(head, cells, room),
        *_blocks(found, room),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _blocks(found: Comparison, room: int) -> Iterator[list[str]]:
    """Yield tables of as many subjects as fit into the room."""
    lines = rows(found)
    names = [_short(report.title) for report in found.reports]
    left = max(len(row.name) for row in lines) + 2
    widths = [
        max(len(name), *(len(row.cells[k]) for row in lines)) + 2 for k, name in enumerate(names)
    ]
    start = 0
    while start < len(names):
        end, used = start + 1, left + widths[start]
        while end < len(names) and used + widths[end] <= room:
            used += widths[end]
            end += 1
        cells = [(row.name, *row.cells[start:end]) for row in lines]
        yield terminal.table(("", *names[start:end]), cells, room)
        start = end


def _short(name: str, longest: int = LONGEST) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def markdown(found: Comparison) -> str:
    """Return the verdict, the pairs and the columns as Markdown."""
    from mindgap.report import markdown as written

    head, cells = _pair_rows(found)
    names = [report.title for report in found.reports]
    columns = [(row.name, *row.cells) for row in rows(found)]
    blocks = [
        f"# {written.safe(found.title)}",
        *written.verdict(found.verdict),
        written.section("Pairs", written.table(head, cells)),
        written.section("Side by side", written.table(("", *names), columns)),
        f"*mindgap {found.provenance.get('mindgap', '')}, {found.created[:10]}*",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def page(found: Comparison) -> str:
    """Return the comparison as one HTML file that needs nothing else."""
    from mindgap.report import html
    from mindgap.report.draw import draw_all

    head, cells = _pair_rows(found, 2 * LONGEST)
    return html.render(
        "compare.html",
        found=found,
        verdict=found.verdict,
        head=head,
        pairs=cells,
        rows=rows(found),
        charts=draw_all(chart(found), "compare"),
    )
