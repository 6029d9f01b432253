"""improve: race remedies against a retuned baseline, and prove on fresh seeds what is left."""

import contextlib
import datetime as dt
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mindgap.core import (
    Finding,
    Progress,
    Task,
    TwoWay,
    find,
    integer,
    mean_interval,
    rate,
    two_way,
    validated,
)
from mindgap.jobs.improve.source import executor_for, trainer_of
from mindgap.jobs.improve.trials import Lab
from mindgap.jobs.improve.words import (
    Told,
    about,
    best_of,
    claims,
    code_of,
    curve,
    headline,
    is_baseline,
    row_of,
)
from mindgap.report.improved import Improved, Passage, Row
from mindgap.report.report import versions
from mindgap.runs.executors import AnyExecutor, LocalExecutor, available_cores
from mindgap.runs.store import Store
from mindgap.runs.sweep import default_store
from mindgap.training.race.arm import BASELINE, RETUNED, Arm, baseline
from mindgap.training.race.candidates import arms_of, cells, extensions, remedies_to_try
from mindgap.training.race.fixes import fixes_of
from mindgap.training.race.judge import Errors, Judged, judge, judge_retuning
from mindgap.training.race.plan import (
    PILOT,
    Plan,
    affordable,
    as_seconds,
    confirmation_seeds,
    make_plan,
)
from mindgap.training.race.search import Searched, search
from mindgap.training.race.trainer import RecipeTrainer, Trainer, digest_of

TRAININGS = 200  # the default: power .85 at a gain of two standard deviations of a seed
_SPAN = 1_000_000  # seeds of one race; the second half is for its confirmation
_CURVE = {"half of the data": 0.5, "a quarter of the data": 0.25}
_LONGER_FROM = 400  # trainings from which four times the epochs may be tried
_CURVE_SEEDS, _CURVE_FROM = 3, 100  # seeds per point, and trainings from which it is drawn


@validated
def improve(
    recipe: Any,
    *,
    budget: str | float | None = None,
    trainings: int | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    executor: AnyExecutor | None = None,
    workers: int | None = None,
    remedies: Sequence[str] | None = None,
    retune: Sequence[Mapping[str, Any]] = (),
    holdout: float = 0.2,
    validation: Any = None,
    test: Any = None,
    loss: Any = "cross_entropy",
    task: Task | None = None,
    name: str = "",
    seed: int = 0,
    progress: bool = False,
) -> Improved:
    """Find out what improves a recipe, and prove it on fresh seeds and untouched test data.

    Half of the budget searches on validation data: it retunes learning rate, epochs and weight
    decay, then races remedies on top of the retuned recipe over three rungs. The other half
    confirms: finalists, the retuned control and the recipe as given are trained on all training
    data with common seeds that no choice has seen. Then the test targets are opened, once.

    Every finished training is kept in the store. A race that is killed or interrupted resumes
    where it stopped, and a finished race returns the same answer when it is run again.

    Args:
        recipe: A :class:`Recipe` with test data, a function that makes one, or a function
            ``train(seed, remedies) -> model`` of your own.
        budget: Time on the clock, such as ``"30m"``. The number of trainings follows from a pilot.
        trainings: Number of trainings, if no time is given; 200 by default. An arm that takes
            twice as long counts twice.
        store: SQLite file of finished trainings; ``$MINDGAP_RUNS`` or a file in the user's cache
            folder by default.
        executor: Where to train; worker processes if the recipe can travel to them, else this
            process.
        workers: Number of worker processes; one per core unless given.
        remedies: Names of remedies to choose from; the whole catalog if None.
        retune: For a function that trains: keywords of further settings to try as its retuned
            baseline, such as ``[{"learning_rate": 0.01}]``.
        holdout: Share of the training data to make choices on.
        validation: For a function that trains: data that it does not train on, to choose on.
        test: For a function that trains: test data.
        loss: For a function that trains: the loss.
        task: For a function that trains: the task, if it does not follow from the loss.
        name: The title of the answer, and what tells two functions apart in one store.
        seed: Seed of the held-out samples, and first seed of the race.
        progress: Whether to show a progress bar.

    Returns:
        The verdict in words, the table of arms, the recipe to use and the log of the race.

    >>> from mindgap import Recipe, nets
    >>> x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > 0).long()
    >>> recipe = Recipe(
    ...     model=lambda: nets.MLP((4, 8, 2)),
    ...     train=(x[:60], y[:60]),
    ...     test=(x[60:], y[60:]),
    ...     epochs=3,
    ... )
    >>> found = improve(recipe, trainings=40, store=":memory:", workers=1)
    >>> found.word in ("helps", "retuning helps", "could not tell", "no difference", "harms")
    True
    """
    _check(trainings, holdout, seed, remedies or ())
    seconds = None if budget is None else as_seconds(budget)
    trainer, source, problem = trainer_of(
        recipe,
        holdout=holdout,
        seed=seed,
        validation=validation,
        test=test,
        loss=loss,
        task=task,
        name=name,
    )
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(_opened(store))
        chosen = executor or stack.enter_context(_closing(executor_for(source, workers)))
        bar = stack.enter_context(
            Progress(trainings or TRAININGS, unit="training", title="improve", shown=progress)
        )
        lab = Lab(problem, source, trainer, kept, chosen, bar)
        count = _trainings(lab, seconds, trainings, seed, _width(chosen, workers))
        job = _Job(trainer, lab, make_plan(count), seed, remedies, tuple(retune))
        return job.run(name, {"seed": seed, "holdout": holdout, "budget": budget})


def _check(trainings: int | None, holdout: float, seed: int, remedies: Sequence[str]) -> None:
    if trainings is not None:
        make_plan(integer("trainings", trainings, 1))
    rate("holdout", holdout)
    integer("seed", seed, 0)
    for name in remedies:
        find(name, "remedy")


def _width(executor: AnyExecutor, workers: int | None) -> int:
    if getattr(executor, "in_flight", None) == 1:
        return 1
    return int(getattr(executor, "workers", 0)) or workers or available_cores()


def _trainings(
    lab: Lab, budget: float | None, trainings: int | None, seed: int, workers: int
) -> int:
    if budget is None:
        return TRAININGS if trainings is None else trainings
    pilot = _seeds(seed)[0][:PILOT]

    def planned() -> int:
        one = lab.seconds(baseline(), pilot)
        count = affordable(budget, one, workers)
        make_plan(count)
        return count

    found = lab.kept_plan(budget, planned)
    return found if trainings is None else min(found, trainings)


def _seeds(seed: int) -> tuple[range, range]:
    """Seeds of the search and of the confirmation, which share none."""
    start, middle = seed * _SPAN, seed * _SPAN + _SPAN // 2
    return range(start, middle), range(middle, start + _SPAN)


@contextlib.contextmanager
def _opened(store: Store | str | os.PathLike[str] | None) -> Iterator[Store]:
    if isinstance(store, Store):
        yield store
        return
    with Store(default_store() if store is None else store) as opened:
        yield opened


@contextlib.contextmanager
def _closing(executor: AnyExecutor) -> Iterator[AnyExecutor]:
    try:
        yield executor
    finally:
        if isinstance(executor, LocalExecutor):
            executor.shutdown(wait=False, cancel_futures=True)
            executor.abort()
            executor.shutdown()


class _Confirmed(NamedTuple):
    """What was trained for the confirmation, and what the test data say."""

    arms: tuple[Arm, ...]
    seeds: int
    errors: Errors
    answers: Mapping[str, Sequence[NDArray[np.float32]]]


class _Job:
    """One race, from the diagnosis to the verdict."""

    def __init__(
        self,
        trainer: Trainer,
        lab: Lab,
        plan: Plan,
        seed: int,
        remedies: Sequence[str] | None,
        retune: Sequence[Mapping[str, Any]],
    ) -> None:
        self._trainer, self._lab, self._plan = trainer, lab, plan
        self._seed, self._remedies, self._retune = seed, remedies, retune
        self._search, self._fresh = _seeds(seed)
        self._findings: list[Finding] = []
        self._skipped: dict[str, str] = {}

    def run(self, name: str, settings: Mapping[str, Any]) -> Improved:
        """Search, confirm, judge, tell."""
        searched = self._searched()
        curve = self._curve(searched.control)
        confirmed = self._confirmed(searched, 0.0 if curve is None else curve[0])
        return self._told(name, settings, searched, curve, confirmed)

    def _searched(self) -> Searched:
        recipe = self._trainer.recipe if isinstance(self._trainer, RecipeTrainer) else None
        fixes = list[Arm]()
        if recipe is not None and isinstance(self._trainer, RecipeTrainer):
            self._findings = self._lab.findings(self._search[0])
            fixes = fixes_of(self._findings, recipe, self._trainer.rest)
        told = [f for f in self._findings if f.severity != "note" and not f.explained_by]
        inputs = self._trainer.validation.take(torch.arange(1)).inputs
        chosen, self._skipped = remedies_to_try(
            [finding.symptom for finding in told if finding.symptom is not None],
            self._trainer.task,
            inputs,
            self._remedies,
        )
        return search(
            self._plan,
            baseline(),
            self._lab.observe,
            cells=self._cells(),
            extend=(lambda *_: []) if recipe is None else extensions(recipe, self._longest()),
            candidates=arms_of(chosen, self._plan, fixes),
            seeds=self._search,
        )

    def _longest(self) -> float:
        return 2.0 if self._plan.trainings < _LONGER_FROM else 4.0

    def _cells(self) -> list[Arm]:
        if isinstance(self._trainer, RecipeTrainer):
            return cells(self._trainer.recipe)
        return [
            Arm(
                name=", ".join(f"{k.replace('_', ' ')} {v}" for k, v in settings.items()),
                group=RETUNED,
                settings=dict(settings),
            )
            for settings in self._retune
        ]

    def _curve(self, control: Arm) -> tuple[float, float, float, TwoWay] | None:
        """Train on half and a quarter of the data, with as many steps; look at validation data.

        Returns:
            The trainings used, the error with all data, the error predicted with twice as many,
            and the gain from half to all; None if the budget has no room.
        """
        if not isinstance(self._trainer, RecipeTrainer) or self._plan.trainings < _CURVE_FROM:
            return None
        epochs = control.settings.get("epochs", self._trainer.recipe.epochs)
        points = [
            Arm(name=text, group=text, settings={"epochs": round(epochs / s)}, fix={"share": s}).on(
                control
            )
            for text, s in _CURVE.items()
        ]
        seeds = self._search[:_CURVE_SEEDS]
        wanted = [(arm, seeds) for arm in [control, *points]]
        found = self._lab.observe("curve", wanted)
        tables = [[found[arm.name, seed] for seed in seeds] for arm, _ in wanted]
        if any(isinstance(row, str) for table in tables for row in table):
            return None
        full, half, quarter = (
            np.stack([row.errors for row in table if not isinstance(row, str)]) for table in tables
        )
        # A power law loses the same share with every doubling of the data.
        share = math.sqrt(min(1.0, full.mean() / max(quarter.mean(), 1e-12)))
        spent = sum(arm.cost for arm in points) * len(seeds)
        return spent, float(full.mean()), float(full.mean() * share), two_way(half - full)

    def _confirmed(self, searched: Searched, reserved: float) -> _Confirmed:
        arms = tuple(
            {arm.name: arm for arm in (baseline(), searched.control, *searched.finalists)}.values()
        )
        left = self._plan.trainings - searched.spent - reserved
        share = int(left / sum(arm.cost for arm in arms))
        samples = len(self._trainer.test)
        count = confirmation_seeds(searched.noise, samples, max(share, 2))
        seeds = self._fresh[:count]
        inputs = digest_of(self._trainer.test, targets=False)
        answers = self._lab.answers([(arm, seeds) for arm in arms], inputs)
        # Only here, after all training, are the test targets read.
        errors = {
            name: np.stack([self._trainer.errors(row) for row in rows])
            for name, rows in answers.items()
        }
        return _Confirmed(arms, count, errors, answers)

    def _told(
        self,
        name: str,
        settings: Mapping[str, Any],
        searched: Searched,
        curve_: tuple[float, float, float, TwoWay] | None,
        confirmed: _Confirmed,
    ) -> Improved:
        control, start, errors = searched.control, baseline(), confirmed.errors
        judged = judge(control, searched.finalists, start, errors)
        retuned = None if is_baseline(control) else judge_retuning(control, start, errors)
        rate_ = self._trainer.task != "regression"
        metric = "test error" if rate_ else "test loss"
        told = Told(metric, rate_, confirmed.seeds, len(self._trainer.test))
        before, best = float(errors[BASELINE].mean()), best_of(judged)
        word, text = headline(told, before, retuned, best)
        chosen = _chosen(word, start, control, best)
        reference = self._ensemble(control, confirmed)
        sentences = [about(told, row) for row in judged]
        if retuned is not None:
            sentences.append(about(told, retuned))
        if curve_ is not None:
            sentences.append(curve(told, *curve_[1:]))
        spent = sum(arm.cost for arm in confirmed.arms) * confirmed.seeds
        return Improved(
            title=name or self._title(),
            word=word,
            headline=text,
            sentences=tuple(sentences),
            claims=claims(
                len(judged), len(self._trainer.validation), bool(searched.trials.get(RETUNED))
            ),
            metric=metric,
            rate=rate_,
            rows=(
                _first_row(errors),
                *([] if retuned is None else [row_of(retuned, "control")]),
                *(row_of(row, "finalist") for row in judged),
                *([] if reference is None else [reference]),
            ),
            log=tuple(Passage(**step.to_dict()) for step in searched.log),
            chosen=chosen.name,
            code=code_of(chosen),
            seeds=confirmed.seeds,
            samples=len(self._trainer.test),
            validation=len(self._trainer.validation),
            trainings={
                "budget": self._plan.trainings,
                "search": round(searched.spent, 2),
                "learning curve": 0 if curve_ is None else round(curve_[0], 2),
                "confirmation": round(spent, 2),
            },
            trials=dict(searched.trials),
            findings=tuple(f"{row.severity}: {row.sentence}" for row in self._findings),
            skipped=self._skipped,
            provenance={
                **versions(),
                **{key: value for key, value in settings.items() if value is not None},
                "date": dt.datetime.now(dt.UTC).isoformat(timespec="minutes"),
            },
        )

    def _title(self) -> str:
        trainer = self._trainer
        return (trainer.recipe.name if isinstance(trainer, RecipeTrainer) else "") or "The recipe"

    def _ensemble(self, control: Arm, confirmed: _Confirmed) -> Row | None:
        """Average the control's models, as a reference that costs no training of its own."""
        rows = np.stack(confirmed.answers[control.name]).astype(np.float64)
        joined = _averaged(rows, self._trainer.task)
        single = confirmed.errors[control.name].mean(0)
        gain = single - self._trainer.errors(joined.astype(np.float32))
        return Row(
            arm=f"ensemble of {confirmed.seeds} retuned models",
            role="reference",
            error=float(single.mean() - gain.mean()),
            cost=confirmed.seeds * control.cost,
            gain=float(gain.mean()),
            interval=mean_interval(gain),
        )


def _averaged(outputs: NDArray[np.float64], task: Task) -> NDArray[np.float64]:
    """Average answers over seeds: probabilities of classes, or outputs."""
    if task != "classification":
        plain: NDArray[np.float64] = outputs.mean(0)
        return plain
    shifted = outputs - outputs.max(-1, keepdims=True)
    shares = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    mean: NDArray[np.float64] = np.log(np.maximum(shares.mean(0), 1e-300))
    return mean


def _first_row(errors: Errors) -> Row:
    by_seed = errors[BASELINE].mean(1)
    return Row(
        arm=BASELINE,
        role="baseline",
        error=float(by_seed.mean()),
        median=float(np.median(by_seed)),
        worst=float(by_seed.max()),
    )


def _chosen(word: str, start: Arm, control: Arm, best: Judged | None) -> Arm:
    if word == "helps" and best is not None:
        return best.arm
    return control if word == "retuning helps" else start
