"""The answer of improve: judgment, words and references, put together."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mindgap.core import Task, mean_interval
from mindgap.jobs.improve import words
from mindgap.jobs.improve.stages import Confirmed, Curve, Stages
from mindgap.report.improved import Improved, Passage, Row
from mindgap.report.report import versions
from mindgap.training.race.arm import BASELINE, RETUNED, Arm, baseline
from mindgap.training.race.judge import Errors, Judged, judge, judge_retuning
from mindgap.training.race.of_recipe import RecipeTrainer
from mindgap.training.race.search import Searched
from mindgap.training.race.trainer import Trainer


def answer_of(
    stages: Stages,
    searched: Searched,
    curve: Curve | None,
    confirmed: Confirmed,
    title: str,
    settings: Mapping[str, Any],
) -> Improved:
    """Judge the finalists on test data and tell what came out.

    Args:
        stages: The race.
        searched: What the search left.
        curve: What less data costs.
        confirmed: What was trained on fresh seeds.
        title: The title; the recipe's name if empty.
        settings: What to print as settings.
    """
    trainer, control, errors = stages.trainer, searched.control, stages.opened(confirmed)
    finalists = judge(control, searched.finalists, baseline(), errors)
    retuned = None if control.group == BASELINE else judge_retuning(control, baseline(), errors)
    rate = trainer.task != "regression"
    metric = "test error" if rate else "test loss"
    told = words.Told(metric, rate, confirmed.seeds, len(trainer.test))
    before, best = float(errors[BASELINE].mean()), words.best_of(finalists)
    clear = curve is not None and curve.half.interval.low > 0
    word, headline = words.headline(told, before, retuned, best, more_data=clear)
    chosen = _chosen(word, control, best)
    return Improved(
        title=title or title_of(trainer),
        word=word,
        headline=headline,
        sentences=_sentences(told, finalists, retuned, curve, stages),
        claims=words.claims(
            len(finalists), list(map(len, trainer.validation)), bool(searched.trials.get(RETUNED))
        ),
        metric=metric,
        rate=rate,
        rows=(
            first_row([errors[BASELINE]]),
            *([] if retuned is None else [words.row_of(retuned, "control")]),
            *(words.row_of(row, "finalist") for row in finalists),
            _ensemble(trainer, control, confirmed, errors),
        ),
        log=tuple(Passage(**step.to_dict()) for step in searched.log),
        chosen=chosen.name,
        code=words.code_of(chosen, recipe=isinstance(trainer, RecipeTrainer)),
        seeds=confirmed.seeds,
        samples=len(trainer.test),
        validation=sum(map(len, trainer.validation)),
        trainings=spent(stages, searched, curve, confirmed),
        trials=dict(searched.trials),
        findings=tuple(f"{row.severity}: {row.sentence}" for row in stages.findings),
        skipped=stages.skipped,
        provenance=provenance(settings),
    )


def provenance(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return versions, what was set, and the date."""
    given = {key: value for key, value in settings.items() if value is not None}
    return {
        **versions(),
        **given,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="minutes"),
    }


def _sentences(
    told: words.Told,
    finalists: list[Judged],
    retuned: Judged | None,
    curve: Curve | None,
    stages: Stages,
) -> tuple[str, ...]:
    found = [words.about(told, row) for row in finalists]
    if retuned is not None:
        found.append(words.about(told, retuned))
    elif isinstance(stages.trainer, RecipeTrainer):
        found.append("Retuning found nothing better on validation data.")
    if curve is not None:
        found.append(words.curve(told, curve.full, curve.doubled, curve.half))
    return tuple(found)


def title_of(trainer: Trainer) -> str:
    """Return the name of the recipe."""
    return (trainer.recipe.name if isinstance(trainer, RecipeTrainer) else "") or "The recipe"


def _chosen(word: str, control: Arm, best: Judged | None) -> Arm:
    if word == "helps" and best is not None:
        return best.arm
    return control if word == "retuning helps" else baseline()


def spent(
    stages: Stages, searched: Searched, curve: Curve | None, confirmed: Confirmed
) -> dict[str, float]:
    """Return the trainings of a race by purpose."""
    return {
        "budget": stages.plan.trainings,
        "diagnosis": float(isinstance(stages.trainer, RecipeTrainer)),
        "search": round(searched.spent, 2),
        "learning curve": 0.0 if curve is None else round(curve.spent, 2),
        "confirmation": round(sum(arm.cost for arm in confirmed.arms) * confirmed.seeds, 2),
    }


def first_row(tables: Sequence[NDArray[np.float64]]) -> Row:
    """Make the row of the recipe as given.

    Args:
        tables: Its errors in every fold, seeds × samples.
    """
    by_seed = np.concatenate([table.mean(1) for table in tables])
    samples = [table.shape[1] for table in tables]
    return Row(
        arm=BASELINE,
        role="baseline",
        error=float(np.average([table.mean() for table in tables], weights=samples)),
        median=float(np.median(by_seed)),
        worst=float(by_seed.max()),
    )


def _ensemble(trainer: Trainer, control: Arm, confirmed: Confirmed, errors: Errors) -> Row:
    """Average the control's models, as a reference that costs no training of its own."""
    rows = np.stack(confirmed.answers[control.name]).astype(np.float64)
    joined = _averaged(rows, trainer.task).astype(np.float32)
    single = errors[control.name].mean(0)
    gain = single - trainer.errors(joined)
    kind = "models as given" if control.group == BASELINE else "retuned models"
    return Row(
        arm=f"ensemble of {confirmed.seeds} {kind}",
        role="reference",
        error=float(single.mean() - gain.mean()),
        cost=confirmed.seeds * control.cost,
        gain=float(gain.mean()),
        interval=mean_interval(gain),
    )


def _averaged(outputs: NDArray[np.float64], task: Task) -> NDArray[np.float64]:
    """Average answers over seeds: probabilities of classes, or outputs."""
    if task == "classification":
        shifted = outputs - outputs.max(-1, keepdims=True)
        outputs = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    mean: NDArray[np.float64] = outputs.mean(0)
    return np.log(np.maximum(mean, 1e-30)) if task == "classification" else mean
