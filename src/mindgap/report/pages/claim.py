"""The verdict on a study: whether its table agrees with what its source published.

The claims that a study judges itself come first. Without any, published numbers are compared with
those next to them in the table.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mindgap.core import Advice, Claim, Table, UnknownNameError, find
from mindgap.core.spec import Words
from mindgap.report import wording
from mindgap.report.parts import Tone, Verdict
from mindgap.runs.results import claims_of, is_tiny, table_of

Way = Literal["same", "other", "unclear"]
WIDE = 1.96  # standard errors on either side make a 95 % interval
MOST_NOTES, LONGEST_NOTE = 3, 320  # of the study's own notes, where nothing can be compared
MOST_ERRORS, LONGEST_ERROR = 3, 200
SETTINGS = (
    "Compare the settings under Provenance with those of the source: data, steps, number of seeds."
)
CONTROL = "Before you use the method, compare it with its control on data of your own."
CAUSE = "Whether the method is the cause, only the controls in the table can say."
KINDS: Mapping[str, tuple[str, Tone, str, tuple[str, ...]]] = {
    "reproduced": (
        "Reproduced",
        "good",
        "What was published is reproduced here.",
        ("Try other settings before you rely on it: those under Provenance alone were tested.",),
    ),
    "direction": (
        "Direction only",
        "warn",
        "The published direction is reproduced, the published numbers are not.",
        (SETTINGS, CONTROL),
    ),
    "part": (
        "Reproduced in part",
        "warn",
        "Only a part of what was published is reproduced here.",
        (SETTINGS, CONTROL),
    ),
    "not": ("Not reproduced", "bad", "What was published is not reproduced here.", (SETTINGS,)),
    "other": (
        "Other numbers",
        "neutral",
        "The numbers differ from the published ones, and no interval says by how much they may.",
        (SETTINGS,),
    ),
    "tiny": (
        "Tiny run",
        "neutral",
        "This is the quick form of the study. It shows that everything runs, and judges nothing.",
        (),
    ),
    "nothing": (
        "No published claim",
        "neutral",
        "No published number or claim is stored with these results, so nothing is judged.",
        ("Read differences with their intervals: one that contains zero shows no effect.",),
    ),
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """A published number with ours, and the interval of ours if there is one.

    ``at_least`` says that the source claims no number but a lower bound of it.
    """

    row: tuple[Any, ...]
    published: float
    ours: float
    low: float | None
    high: float | None
    at_least: bool = False

    @property
    def agrees(self) -> bool | None:
        """Whether our interval agrees with what was published; None without an interval."""
        if self.low is None or self.high is None:
            return None
        if self.at_least:
            return self.published <= self.low
        return self.low <= self.published <= self.high


WEAKER = "The published direction is reproduced, but not everywhere or not as strongly."


@dataclasses.dataclass(frozen=True)
class Compared:
    """What was published, compared with a table.

    Args:
        pairs: Published numbers with ours.
        ways: For every published difference between two arms, which way it points here.
    """

    pairs: tuple[Pair, ...] = ()
    ways: tuple[Way, ...] = ()

    @property
    def kind(self) -> str:
        """Return which of :data:`KINDS` this is."""
        if not self.pairs:
            return "nothing"
        inside = [pair.agrees for pair in self.pairs]
        if not self.ways:
            return "other" if None in inside else _kind(sum(map(bool, inside)), len(inside))
        same = self.ways.count("same")
        if same == len(self.ways):
            return "reproduced" if all(inside) else "direction"
        return "part" if same else "not"

    def sentences(self) -> list[str]:
        """Count what agrees."""
        known = [pair.agrees for pair in self.pairs if pair.agrees is not None]
        found = []
        if known:
            found.append(
                f"{sum(known)} of {wording.count(len(known), 'comparison')} with a published "
                "number agree within the 95 % interval measured here."
            )
        elif self.pairs:
            found += [
                f"Published {wording.number(pair.published)}, measured {wording.number(pair.ours)}"
                f" ({_named(pair.row)})."
                for pair in self.pairs[:MOST_NOTES]
            ]
        if self.ways:
            found.append(_counted(self.ways))
        if "same" in self.ways:
            found.append(CAUSE)
        return found


def _kind(right: int, total: int) -> str:
    return "reproduced" if right == total else "part" if right else "not"


def _kind_of(claims: Sequence[Claim]) -> str:
    """Sum up claims that a study judged itself.

    >>> _kind_of([Claim("a", "yes"), Claim("b", "direction")]), _kind_of([Claim("a", "no")])
    ('direction', 'not')
    """
    held = [claim.held for claim in claims]
    if "no" in held:
        return "part" if set(held) - {"no"} else "not"
    return "direction" if "direction" in held else "reproduced"


def _counted(ways: Sequence[Way]) -> str:
    same, other, unclear = (ways.count(way) for way in ("same", "other", "unclear"))
    told = [
        f"{same} {'points' if same == 1 else 'point'} the same way here" if same else "",
        f"{other} {'points' if other == 1 else 'point'} the other way" if other else "",
        f"{unclear} cannot be told from zero" if unclear else "",
    ]
    return (
        f"Of {wording.count(len(ways), 'published difference')} between arms, "
        f"{', '.join(filter(None, told))} (95 % intervals, each on its own)."
    )


def _named(row: Sequence[Any]) -> str:
    return ", ".join(str(value) for value in row if isinstance(value, str)) or "the first column"


def judge_results(results: Mapping[str, Any]) -> Verdict:
    """Judge a file of results; this is what the study's page and ``mindgap reproduce`` say.

    Args:
        results: What ``mindgap.runs.load_results`` reads.
    """
    table, name = table_of(results), str(results["study"])
    if is_tiny(results):
        return _tiny(results, name)
    if not (table.claims or compared(table).pairs):
        table = dataclasses.replace(table, claims=claims_of(results))
    trials = counted_trials(results.get("trials", ()))
    return judge_study(table, results.get("expected", {}), trials, words_of_study(name), name)


def _tiny(results: Mapping[str, Any], name: str) -> Verdict:
    """Say that nothing is judged; what failed is said first all the same."""
    label, tone, headline, _ = KINDS["tiny"]
    words, trials = words_of_study(name), counted_trials(results.get("trials", ()))
    whole = Verdict(
        kind="tiny",
        label=label,
        tone=tone,
        headline=headline,
        sentences=(f"Measured: {words.summary}",) if words else (),
        advice=(Advice(text=f"Run ``mindgap run {name}`` for an answer, without ``--tiny``."),),
    )
    return _incomplete(whole, trials, name) if trials["failed"] or trials["missing"] else whole


def words_of_study(name: str) -> Words | None:
    """Return what a study says of itself; None if it is not installed."""
    try:
        return find(name, "study").words()
    except UnknownNameError:
        return None


def counted_trials(trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count trials by their status, and list their errors."""
    counts = {
        status: sum(trial["status"] == status for trial in trials)
        for status in ("done", "failed", "missing")
    }
    errors = list(dict.fromkeys(trial["error"] for trial in trials if trial.get("error")))
    return {"total": len(trials), "errors": errors, **counts}


def judge_study(
    table: Table,
    expected: Mapping[str, float],
    trials: Mapping[str, Any],
    words: Words | None,
    name: str,
) -> Verdict:
    """Judge a study by its table, and say first if trials are missing.

    Args:
        table: The table, with its claims, or with the published numbers next to those measured
            here.
        expected: All published numbers.
        trials: How many trials there are, finished, failed and missing, and their errors.
        words: What the study is, if it is known.
        name: The name of the study.
    """
    found = compared(table)
    kind = _kind_of(table.claims) if table.claims else found.kind
    label, tone, headline, steps = KINDS[kind]
    if table.claims and kind == "direction":
        headline = WEAKER
    elif expected and kind == "nothing":
        headline = "The table holds no number next to a published one, so nothing is judged."
    told = [f"Measured: {words.summary}"] if words else []
    told += (
        list(map(str, table.claims))
        or found.sentences()
        or [note for note in table.notes[:MOST_NOTES] if len(note) <= LONGEST_NOTE]
    )
    whole = Verdict(
        kind=kind,
        label=label,
        tone=tone,
        headline=headline,
        sentences=tuple(told),
        advice=tuple(Advice(text=step) for step in steps),
    )
    if trials["failed"] or trials["missing"]:
        return _incomplete(whole, trials, name)
    return whole


def _incomplete(whole: Verdict, trials: Mapping[str, Any], name: str) -> Verdict:
    """Put what is missing first: a verdict on some of the trials is provisional."""
    errors = [f"``{str(error)[:LONGEST_ERROR]}``" for error in trials["errors"][:MOST_ERRORS]]
    so_far = f"From the finished trials alone: {whole.label.lower()}. {whole.headline}"
    again = Advice(text=f"Run ``mindgap run {name}`` again; finished trials are kept.")
    return dataclasses.replace(
        whole,
        kind="incomplete",
        label="Incomplete",
        tone="warn",
        headline=f"{trials['failed']} of {wording.count(trials['total'], 'trial')} failed and "
        f"{trials['missing']} were not run.",
        sentences=(*errors, so_far, *whole.sentences),
        advice=(again, *whole.advice),
    )


def compared(table: Table) -> Compared:
    """Compare the published numbers of a table with those next to them.

    A difference between two arms points a way only if its interval leaves out zero. The interval
    is the paired one of the table where it has one, else it follows from both standard errors.

    >>> rows = (("a", 2.0, 2.1, 0.1), ("b", 3.0, 3.2, 0.2))
    >>> found = compared(Table(title="t", columns=("arm", "paper", "ours", "se"), rows=rows))
    >>> found.kind, found.ways
    ('reproduced', ('same',))
    """
    places = _places(table)
    if places is None:
        return Compared()
    pairs = tuple(
        pair for row in table.rows if (pair := _pair(table.columns, row, *places)) is not None
    )
    if "arm" not in table.columns:
        return Compared(pairs)
    arm = table.columns.index("arm")
    ways = tuple(
        _way(table.columns, first, second)
        for first, second in itertools.combinations(pairs, 2)
        if _head(first.row, places[0], arm) == _head(second.row, places[0], arm)
        and first.published != second.published
    )
    return Compared(pairs, ways)


def _places(table: Table) -> tuple[int, int] | None:
    """Return the columns of the published numbers and of ours, which are next to each other."""
    found = [k for k, name in enumerate(table.columns) if name.startswith(("paper", "published"))]
    if not found:
        return None
    for ours in (found[0] + 1, found[0] - 1):
        if 0 <= ours < len(table.columns) and any(_number(row[ours]) for row in table.rows):
            return found[0], ours
    return None


def _head(row: tuple[Any, ...], end: int, arm: int) -> tuple[Any, ...]:
    """Return what a row is about, apart from its arm."""
    return tuple(value for k, value in enumerate(row[:end]) if k != arm)


def _pair(columns: Sequence[str], row: tuple[Any, ...], published: int, ours: int) -> Pair | None:
    if not (_number(row[published]) and _number(row[ours])):
        return None
    ends = _interval(columns, row, ours)
    at_least = "at least" in columns[published]
    return Pair(row, float(row[published]), float(row[ours]), *ends, at_least)


def _interval(
    columns: Sequence[str], row: tuple[Any, ...], place: int
) -> tuple[float | None, float | None]:
    """Return the ends right of a number, or two standard errors around it."""
    after = [name.split(",")[0] for name in columns[place + 1 : place + 3]]
    if after[:1] == ["se"] and _number(row[place + 1]):
        return row[place] - WIDE * row[place + 1], row[place] + WIDE * row[place + 1]
    if after == ["low", "high"] and _number(row[place + 1]) and _number(row[place + 2]):
        return row[place + 1], row[place + 2]
    return None, None


def _way(columns: Sequence[str], first: Pair, second: Pair) -> Way:
    """Say whether our difference of two arms points the published way."""
    low, high = _difference(columns, first, second)
    if low is None or high is None or low <= 0 <= high:
        return "unclear"
    return "same" if (low > 0) == (second.published > first.published) else "other"


def _difference(
    columns: Sequence[str], first: Pair, second: Pair
) -> tuple[float | None, float | None]:
    """Return the interval of the second arm minus the first."""
    gap = second.ours - first.ours
    for pair, sign in ((second, 1), (first, -1)):
        for place in range(len(columns) - 2):
            found = pair.row[place]
            # The column that holds this very difference has its paired interval.
            if _number(found) and math.isclose(found, sign * gap, rel_tol=1e-6):
                ends = _interval(columns, pair.row, place)
                if None not in ends and columns[place + 1] != "se":
                    low, high = sorted(sign * float(end) for end in ends if end is not None)
                    return low, high
    halves = [
        (pair.high - pair.low) / 2
        for pair in (first, second)
        if pair.low is not None and pair.high is not None
    ]
    if len(halves) < 2:
        return None, None
    return gap - math.hypot(*halves), gap + math.hypot(*halves)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
