"""The answer of improve with outer folds: what it picks, tested on every sample once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mindgap.core import two_way
from mindgap.jobs.improve import words
from mindgap.jobs.improve.answer import first_row, provenance, spent, title_of
from mindgap.jobs.improve.stages import Confirmed, Stages
from mindgap.report.improved import Improved, Passage
from mindgap.report.wording import both_ends, change
from mindgap.training.race.arm import BASELINE, RETUNED, Arm, baseline
from mindgap.training.race.judge import Judged, Table, judge_folds
from mindgap.training.race.search import Searched

PICKS = "what improve picks"


class Fold(NamedTuple):
    """One outer fold, searched and trained.

    Args:
        stages: Its race.
        searched: What its search left.
        confirmed: What was trained on fresh seeds.
    """

    stages: Stages
    searched: Searched
    confirmed: Confirmed

    @property
    def pick(self) -> Arm:
        """What the search ranks first; the control if no arm could be trained."""
        return self.searched.finalists[0] if self.searched.finalists else self.searched.control


class _Tables(NamedTuple):
    """Test errors per fold, seeds × samples."""

    given: list[Table]
    control: list[Table]
    pick: list[Table]


def nested_answer(folds: Sequence[Fold], title: str, settings: Mapping[str, Any]) -> Improved:
    """Judge the picks of all folds as one.

    Args:
        folds: The outer folds, after all of them are trained.
        title: The title; the recipe's name if empty.
        settings: What to print as settings.
    """
    tables, trainer = _opened(folds), folds[0].stages.trainer
    picked = judge_folds(_standing(folds), tables.pick, tables.control, tables.given)
    tuned = judge_folds(_tuned(folds), tables.control, tables.given, tables.given)
    rate, samples = trainer.task != "regression", sum(table.shape[1] for table in tables.pick)
    seeds = min(fold.confirmed.seeds for fold in folds)
    metric = "test error" if rate else "test loss"
    told = words.Told(metric, rate, seeds, samples, len(folds))
    row = first_row(tables.given)
    word, headline = words.headline(told, row.error, tuned, picked)
    chosen = _chosen(word, folds)
    return Improved(
        title=title or title_of(trainer),
        word=word,
        headline=headline,
        sentences=_sentences(told, folds, tables, picked, tuned),
        claims=words.claims_of_folds(len(folds)),
        metric=metric,
        rate=rate,
        rows=(row, words.row_of(tuned, "control"), words.row_of(picked, "finalist")),
        log=tuple(
            Passage(**step.to_dict(), fold=number)
            for number, fold in enumerate(folds, 1)
            for step in fold.searched.log
        ),
        chosen=chosen.name,
        code=words.code_of(chosen),
        seeds=seeds,
        samples=samples,
        validation=sum(map(len, trainer.validation)),
        folds=len(folds),
        trainings=_sum([spent(f.stages, f.searched, None, f.confirmed) for f in folds]),
        trials=_sum([fold.searched.trials for fold in folds]),
        findings=_findings(folds),
        skipped=folds[0].stages.skipped,
        provenance=provenance(settings),
    )


def _opened(folds: Sequence[Fold]) -> _Tables:
    errors = [fold.stages.opened(fold.confirmed) for fold in folds]
    return _Tables(
        [own[BASELINE] for own in errors],
        [own[fold.searched.control.name] for own, fold in zip(errors, folds, strict=True)],
        [own[fold.pick.name] for own, fold in zip(errors, folds, strict=True)],
    )


def _standing(folds: Sequence[Fold]) -> Arm:
    cost = sum(fold.pick.cost for fold in folds) / len(folds)
    return Arm(name=PICKS, group=PICKS, cost=cost)


def _tuned(folds: Sequence[Fold]) -> Arm:
    cost = sum(fold.searched.control.cost for fold in folds) / len(folds)
    return Arm(name="what retuning picks", group=RETUNED, cost=cost)


def _chosen(word: str, folds: Sequence[Fold]) -> Arm:
    """Return what most folds picked, the first fold's if they differ; test data have no say."""
    if word not in ("helps", "retuning helps"):
        return baseline()
    arms = [fold.pick if word == "helps" else fold.searched.control for fold in folds]
    names = Counter((arm.name, *sorted(arm.settings.items())) for arm in arms)
    most = names.most_common(1)[0][0]
    return next(arm for arm in arms if (arm.name, *sorted(arm.settings.items())) == most)


def _sentences(
    told: words.Told, folds: Sequence[Fold], tables: _Tables, picked: Judged, tuned: Judged
) -> tuple[str, ...]:
    unit = " points" if told.rate else ""
    found = [words.about(told, picked), words.about(told, tuned)]
    for fold, control, pick in zip(folds, tables.control, tables.pick, strict=True):
        gain = two_way(control - pick)
        found.append(
            f"Fold {len(found) - 1} picked {fold.pick.name}, on {_name(fold.searched.control)}: gain "
            f"{change(gain.difference, told.rate)}{unit} (95 % interval "
            f"{both_ends(gain.interval, told.rate)})."
        )
    return tuple(found)


def _name(control: Arm) -> str:
    return "the recipe as given" if control.group == BASELINE else control.name


def _sum(counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for own in counts for name in own)
    return {name: round(sum(own.get(name, 0) for own in counts), 2) for name in names}


def _findings(folds: Sequence[Fold]) -> tuple[str, ...]:
    return tuple(
        f"fold {number}, {row.severity}: {row.sentence}"
        for number, fold in enumerate(folds, 1)
        for row in fold.stages.findings
    )
