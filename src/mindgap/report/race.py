"""Charts of ``improve``: how much every arm gains, and who led the race when."""

from collections.abc import Sequence

from mindgap.core import Bar, Chart, Line, Series
from mindgap.report.improved import STAGES, Improved, Passage, Row

FAR = 1.5  # times the largest error of an arm that survived the first rung: beyond it, not drawn


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
