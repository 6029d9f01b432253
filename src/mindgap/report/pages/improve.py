"""The page of ``mindgap improve``: the verdict, the table, the race and what is claimed."""

import math
from collections.abc import Sequence

from mindgap.core import Advice, Bar, Chart, Line, Series
from mindgap.report import html, wording
from mindgap.report.draw import draw_all
from mindgap.report.improved import STAGES, Improved, Passage, Row
from mindgap.report.parts import Verdict
from mindgap.report.wording import amount

FAR = 1.5  # times the largest error of an arm that survived the first rung: beyond it, not drawn
LABELS = {
    "helps": "Helps",
    "retuning helps": "Retuning helps",
    "could not tell": "Could not tell",
    "no difference": "No difference",
    "harms": "Harms",
}


def improve_html(improved: Improved) -> str:
    """Return the page as text."""
    charts = draw_all(improved.charts(), "improve")
    return html.render(
        "improve.html",
        improved=improved,
        verdict=_verdict(improved),
        table=improved.table(),
        gains=charts[:1],
        race=charts[1:],
        passages=_dropped(improved),
        provenance=_provenance(improved),
    )


def _verdict(improved: Improved) -> Verdict:
    """Return what the card says: the words of the race, and the recipe to use as code."""
    use = "Use the recipe as it is:" if improved.chosen == "baseline" else f"Use {improved.chosen}:"
    return Verdict(
        kind=improved.word,
        label=LABELS.get(improved.word, improved.word),
        tone=improved.tone,
        headline=improved.headline,
        sentences=tuple(improved.sentences),
        advice=(Advice(text=use, code=improved.code),),
    )


def _dropped(improved: Improved) -> list[tuple[str, str | None, Passage]]:
    """Every arm once per fold, with the stage that it did not survive; the survivors first."""
    order = list(STAGES)
    last: dict[tuple[int, str], Passage] = {}
    for step in improved.log:
        kept = last.get((step.fold, step.arm))
        if kept is None or order.index(step.stage) >= order.index(kept.stage):
            last[step.fold, step.arm] = step
    rows = sorted(
        last.values(),
        key=lambda s: (
            *(s.fold, -order.index(s.stage), not s.kept),
            math.inf if s.score is None else s.score,
        ),
    )
    return [(_fate(step), _score(step, improved.rate), step) for step in rows]


def _score(step: Passage, rate: bool) -> str | None:
    return None if step.score is None else amount(step.score, rate)


def _fate(step: Passage) -> str:
    if step.kept:
        return "confirmed" if step.stage == "rung 3" else f"kept after {STAGES[step.stage]}"
    if not step.seeds:
        return "not tried"
    return f"dropped in the {STAGES[step.stage]}"


def _provenance(improved: Improved) -> dict[str, str]:
    spent = ", ".join(f"{name} {value:g}" for name, value in improved.trainings.items())
    trials = ", ".join(f"{name} {count}" for name, count in improved.trials.items())
    facts = {
        "Trainings": f"{spent} (one is a training of the recipe as given)",
        "Trials in the search": trials,
        "Confirmation": f"{wording.count(improved.seeds, 'fresh seed')} per arm"
        f"{' and fold' if improved.folds > 1 else ''}, "
        f"{wording.count(improved.samples, 'test sample')}",
        "Validation": wording.count(improved.validation, "sample"),
        **{f"Left out: {name}": why for name, why in improved.skipped.items()},
    }
    return facts | {
        wording.title(str(name)): wording.cell(value) for name, value in improved.provenance.items()
    }


def charts_of(improved: Improved) -> tuple[Chart, ...]:
    """Draw the gains, and the race of every outer fold.

    Args:
        improved: What improve found.
    """
    folds = sorted({step.fold for step in improved.log})
    races = [_race(improved, fold) for fold in folds]
    return tuple(chart for chart in (_gains(improved), *races) if chart is not None)


def _gains(improved: Improved) -> Chart | None:
    rows = [row for row in improved.rows if row.gain is not None and row.interval is not None]
    if not rows:
        return None
    return Bar(
        title=f"How much lower the {improved.metric} is",
        caption="Whiskers are 95 % intervals. Retuning is compared with the recipe as given, all "
        "else with the retuned control.",
        y_label=f"gain in {improved.metric}",
        series=[
            Series(
                x=[_against(row) for row in rows],
                y=[row.gain for row in rows],
                low=[row.interval.low for row in rows if row.interval],
                high=[row.interval.high for row in rows if row.interval],
            )
        ],
        horizontal=True,
        percent=improved.rate,
    )


def _against(row: Row) -> str:
    return "retuning alone" if row.role == "control" else row.arm


def _race(improved: Improved, fold: int) -> Chart | None:
    rungs = [
        step
        for step in improved.log
        if step.fold == fold and step.stage != "retune" and step.score is not None
    ]
    if not rungs:
        return None
    last = {step.arm: step.stage for step in rungs}
    runners = [arm for arm, stage in last.items() if stage != "rung 1"]
    early, hidden = _early(rungs, runners)
    tail = f" {hidden} arms lie higher and are not shown." if hidden else ""
    return Line(
        title="The race on validation data" + (f", fold {fold}" if fold else ""),
        caption="A line ends where its arm was dropped. What reaches the end of the third rung "
        f"was confirmed, unless it ranked too low there.{tail}",
        x_label="stage",
        y_label="validation error" if improved.rate else "validation loss",
        x_scale="category",
        percent=improved.rate,
        series=[*(_run_of(arm, rungs) for arm in runners), *early],
        wide=True,
    )


def _early(rungs: Sequence[Passage], runners: Sequence[str]) -> tuple[list[Series], int]:
    """Draw who was dropped in the first rung; count who lies too high to be drawn."""
    # One arm far off would press all others together.
    limit = FAR * max((step.score or 0.0 for step in rungs if step.arm in runners), default=0.0)
    dropped = [step for step in rungs if step.arm not in runners]
    shown = [step for step in dropped if (step.score or 0.0) <= limit]
    if not shown:
        return [], len(dropped)
    series = Series(
        name="dropped in the first rung",
        x=[STAGES["rung 1"]] * len(shown),
        y=[step.score for step in shown],
        mode="markers",
    )
    return [series], len(dropped) - len(shown)


def _run_of(arm: str, rungs: Sequence[Passage]) -> Series:
    own = [step for step in rungs if step.arm == arm]
    return Series(
        name=arm,
        x=[STAGES[step.stage] for step in own],
        y=[step.score for step in own],
        mode="lines+markers",
    )
