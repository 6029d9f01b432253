"""What decompose found: the terms at every size, as text, page and JSON."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from mindgap.core import Advice, Bar, Chart, Line, Recipe, Series
from mindgap.data.sources import Source
from mindgap.report.parts import Answer, Verdict
from mindgap.training.decomposition.runs import Decomposed, Plan
from mindgap.training.decomposition.terms import Term, excess_risk, total

TOLERANCES = tuple(10 ** (k / 2) for k in range(0, -9, -1))  # of the training loss
ALWAYS = (
    "The best of the class is the best that was found: its risk, and so the approximation error, "
    "is an upper estimate, and the estimation error a lower one.",
    "The empirical minimizer is the one with the lowest training loss that was found. Where many "
    "weights reach it, the estimation error is that of these weights.",
    "An optimization error below zero says that the run is better on unseen data than the "
    "empirical minimizer: it stopped early, or something else regularized it.",
)
UNKNOWN = (
    "The best predictor is unknown. So its risk, which no model can avoid, cannot be separated "
    "from the approximation error: only their sum, the risk of the best of the class, is known."
)
FINITE = (
    "The training sets are small parts of the recipe's own data, and the best of the class was "
    "trained on {large:,} samples, not on very many. At the full size of the data, neither "
    "estimation nor approximation error can be estimated: there are no further samples to learn "
    "the best of the class from. What can be is the generalization error and how far the "
    "training loss is above its minimum."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The terms at one number of training samples.

    Args:
        size: Training samples.
        risk: The risk of the runs.
        excess_risk: Their risk above that of the best predictor; None if that is unknown.
        excess: Approximation, estimation and optimization error; the first only where the best
            predictor is known.
        whole: Generalization, optimization, statistical and approximation error.
        above: Training loss of the runs above that of the empirical minimizers.
        restarts: Mean lowest and highest training loss of a search's restarts.
    """

    size: int
    risk: Term
    excess_risk: float | None
    excess: tuple[Term, ...]
    whole: tuple[Term, ...]
    above: Term
    restarts: tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decomposition(Answer):
    """Where the risk comes from; ``print`` shows the terms.

    Args:
        name: The recipe's name.
        source: Where samples came from.
        kind: ``"loss"`` or ``"error"``.
        rows: One per number of training samples.
        notes: What the numbers do and do not say.
        plan: What was spent.
        charts: Terms by size, over training time, and against the tolerance.
    """

    template = "decompose.html"

    name: str
    source: str
    kind: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    plan: Plan
    charts: tuple[Chart, ...]

    @property
    def verdict(self) -> Verdict:
        """The result at the largest size, in words."""
        return _verdict(self)

    def text(self) -> str:
        """Write the verdict and all terms."""
        lines = [self.verdict.headline, *self.verdict.sentences]
        for row in self.rows:
            known = "" if row.excess_risk is None else f", {row.excess_risk:.4g} above the best"
            lines += ["", f"{row.size:,} training samples: risk {_shown(row.risk)}{known}"]
            lines += [f"  {_title(row)}", *(_line(term) for term in row.excess)]
            lines += ["  risk =", *(_line(term) for term in row.whole)]
        return "\n".join([*lines, "", *(f"· {note}" for note in self.notes)])

    def drawn(self) -> dict[str, Sequence[Chart]]:
        """Show the terms, then the curves."""
        return {"terms": self.charts[:2], "curves": self.charts[2:]}


def _title(row: Row) -> str:
    best = (
        "risk of the best predictor" if row.excess_risk is not None else "risk of the class's best"
    )
    return f"risk above the {best} ="


def _line(term: Term) -> str:
    return f"    {term.name:<15}{_shown(term)}"


def _shown(term: Term) -> str:
    return f"{term.value:.4g} {term.interval}"


def told(
    recipe: Recipe,
    source: Source,
    found: Sequence[Decomposed],
    plan: Plan,
    kind: str,
    *,
    finite: bool,
) -> Decomposition:
    """Put what was found into plain data and charts."""
    rows = tuple(
        Row(
            size=row.size,
            risk=row.losses.risk,
            excess_risk=excess_risk(row.losses),
            excess=row.losses.excess,
            whole=row.losses.whole,
            above=row.losses.gap,
            restarts=row.restarts,
        )
        for row in found
    )
    unknown = () if rows[0].excess_risk is not None else (UNKNOWN,)
    limits = (FINITE.format(large=plan.large),) if finite else ()
    return Decomposition(
        name=recipe.name or "the recipe",
        source=source.name,
        kind=kind,
        rows=rows,
        notes=(*ALWAYS, *unknown, *limits),
        plan=plan,
        charts=(*_terms(rows, kind), _time(found[-1]), *_tolerance(found[-1])),
    )


def _terms(rows: Sequence[Row], kind: str) -> list[Chart]:
    label = "share of wrong answers" if kind == "error" else "loss"
    titles = {"excess": "Terms of the excess risk", "whole": "Terms of the risk"}
    if len(rows) == 1:
        return [_bars(title, getattr(rows[0], key), label) for key, title in titles.items()]
    return [
        Line(
            title=f"{title} by number of training samples",
            x_label="training samples",
            y_label=label,
            x_scale="log",
            caption="Bands are 95 % intervals over training sets, samples and references.",
            series=[
                Series(
                    name=term.name,
                    x=[row.size for row in rows],
                    **_ends([getattr(row, key)[k] for row in rows]),
                )
                for k, term in enumerate(getattr(rows[0], key))
            ],
        )
        for key, title in titles.items()
    ]


def _bars(title: str, terms: Sequence[Term], label: str) -> Bar:
    series = Series(name="term", x=[term.name for term in terms], **_ends(terms))
    caption = "Whiskers are 95 % intervals over training sets, samples and references."
    return Bar(title=title, y_label=label, series=[series], caption=caption, wide=False)


def _ends(terms: Sequence[Term]) -> dict[str, Any]:
    return {
        "y": [term.value for term in terms],
        "low": [term.interval.low for term in terms],
        "high": [term.interval.high for term in terms],
    }


def _time(row: Decomposed) -> Line:
    found = row.over_time()
    return Line(
        title=f"Over training time, {row.size:,} training samples",
        x_label="epoch",
        y_label="loss",
        x_scale="log",
        caption="Optimization error: risk above that of the empirical minimizer.",
        series=[
            Series(
                name=f"{name} error",
                x=[epoch for epoch, _ in found],
                y=[parts[name][0] for _, parts in found],
                low=[parts[name][1].low for _, parts in found],
                high=[parts[name][1].high for _, parts in found],
            )
            for name in ("generalization", "optimization")
        ],
    )


def _tolerance(row: Decomposed) -> list[Chart]:
    found = [(level, stop) for level in TOLERANCES if (stop := row.at_tolerance(level))]
    if not found:
        return []
    return [
        Line(
            title="Optimization error in the risk against the tolerance of training",
            x_label="training loss above its minimum when training stops",
            y_label="loss",
            x_scale="log",
            series=[
                Series(
                    name="optimization error",
                    x=[level for level, _ in found],
                    y=[stop[1] for _, stop in found],
                    low=[stop[2].low for _, stop in found],
                    high=[stop[2].high for _, stop in found],
                )
            ],
        )
    ]


ADVICE = {
    "approximation": "Enlarge the network: no member of this class that was found does better.",
    "estimation": "Get more samples, or regularize: the class holds better members than these "
    "samples show.",
    "optimization": "Train for longer or with another optimizer: the training loss has lower minima, "
    "and they are better on unseen data.",
}


def _verdict(found: Decomposition) -> Verdict:
    row = found.rows[-1]
    largest = max(row.excess, key=lambda term: term.value)
    sure = largest.interval.low > 0
    negative = row.excess[-1].interval.high < 0
    sentences = [
        f"The run's training {found.kind} is {row.above.value:.3g} above the lowest that was found.",
        *(["The run is better on unseen data than the empirical minimizer."] if negative else []),
        *([] if row.excess_risk is not None else [UNKNOWN]),
    ]
    rest = total(row.whole) - row.risk.value
    assert math.isclose(rest, 0, abs_tol=1e-9 * max(1.0, abs(row.risk.value)))
    label = f"Mostly {largest.name} error" if sure else "No term stands out"
    return Verdict(
        kind=largest.name if sure else "none",
        label=label,
        tone="neutral",
        headline=f"With {row.size:,} training samples the largest term is the {largest.name} error: "
        f"{_shown(largest)} of a risk of {row.risk.value:.4g}.",
        sentences=tuple(sentences),
        advice=(Advice(text=ADVICE[largest.name]),) if sure else (),
    )
