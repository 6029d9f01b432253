"""The page of ``mindgap improve``: the verdict, the table, the race and what is claimed."""

import math

from mindgap.core import Advice
from mindgap.report import html, wording
from mindgap.report.draw import draw_all
from mindgap.report.gains import amount
from mindgap.report.improved import STAGES, Improved, Passage
from mindgap.report.parts import Verdict

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
