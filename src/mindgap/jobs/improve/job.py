"""improve: race remedies against a retuned baseline, and prove on fresh seeds what is left."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mindgap.core import Progress, Task, find, integer, rate, validated
from mindgap.jobs.improve.answer import answer_of
from mindgap.jobs.improve.nested import Fold, nested_answer
from mindgap.jobs.improve.source import executor_for, trainer_of
from mindgap.jobs.improve.stages import Stages, seeds_of
from mindgap.jobs.improve.trials import Lab
from mindgap.report.improved import Improved
from mindgap.runs.executors import AnyExecutor, LocalExecutor, as_executor, available_cores
from mindgap.runs.store import Store
from mindgap.runs.sweep import default_store
from mindgap.training.race.arm import baseline
from mindgap.training.race.of_recipe import Outer
from mindgap.training.race.plan import PILOT, Plan, affordable, as_seconds, make_plan

TRAININGS = 200  # the default; see the study simulated-races for what it finds

_MOST, _LARGEST_SEED, _FOLDS = 100_000, 1_000_000, 5


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
    folds: int = 1,
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
        executor: Where to train. By default worker processes for a function that makes a recipe,
            and this process for a recipe or a function that trains.
        workers: Number of worker processes, also for a recipe that can be pickled. One per core
            for a function that makes a recipe, unless given.
        remedies: Names of remedies to choose from; the whole catalog if None.
        retune: For a function that trains: keywords of further settings to try as its retuned
            baseline, such as ``[{"learning_rate": 0.01}]``.
        holdout: Share of the training data to make choices on, in every training. Disjoint parts
            of this size, five at most, take turns.
        folds: Number of outer folds, for small data sets. From 2 on, training and test data are
            pooled, every fold is searched on its own, and every sample is tested once. The claim is
            then about what improve picks, not about one arm. The budget is divided by the folds.
        validation: For a function that trains: data that it does not train on, to choose on.
        test: For a function that trains: test data.
        loss: For a function that trains: the loss.
        task: For a function that trains: the task, if it does not follow from the loss.
        name: The title of the answer, and what tells two functions apart in one store.
        seed: Seed of the held-out samples, and first seed of the race.
        progress: Whether to show a progress bar.

    Returns:
        The verdict in words, the table of arms, the recipe to use and the log of the race.

    >>> import torch
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
    _check(trainings, holdout, seed, remedies or (), folds)
    seconds = None if budget is None else as_seconds(budget)
    if workers is not None:
        integer("workers", workers, 1, _MOST)
    given = {"validation": validation, "test": test, "loss": loss, "task": task, "name": name}
    sources = [
        trainer_of(recipe, retune=tuple(retune), holdout=holdout, seed=seed, outer=outer, **given)
        for outer in _outers(folds, seed)
    ]
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(_opened(store))
        chosen = (
            stack.enter_context(_closing(executor_for(sources[0][1], workers)))
            if executor is None
            else as_executor(executor)
        )
        bar = stack.enter_context(
            Progress(trainings or TRAININGS, unit="training", title="improve", shown=progress)
        )
        labs = [Lab(problem, made, own, kept, chosen, bar) for own, made, problem in sources]
        count = _trainings(labs[0], seconds, trainings, seed, _width(chosen, workers))
        choices = (_plan(count, folds), seed, remedies, tuple(retune))
        races = [
            Stages(source[0], lab, *choices, fold)
            for fold, (source, lab) in enumerate(zip(sources, labs, strict=True))
        ]
        settings = {"seed": seed, "holdout": holdout, "budget": budget}
        return _nested(races, name, settings) if folds > 1 else _whole(races[0], name, settings)


def _outers(folds: int, seed: int) -> list[Outer | None]:
    if folds == 1:
        return [None]
    return [Outer(number=k, count=folds, seed=seed) for k in range(folds)]


def _whole(stages: Stages, name: str, settings: Mapping[str, Any]) -> Improved:
    """Search, confirm, and judge on the test data."""
    searched = stages.search()
    curve = stages.curve(searched)
    confirmed = stages.confirm(searched, 1.0 + (0.0 if curve is None else curve.spent))
    return answer_of(stages, searched, curve, confirmed, name, settings)


def _nested(races: Sequence[Stages], name: str, settings: Mapping[str, Any]) -> Improved:
    """Search and confirm in every fold; then judge all of them."""
    folds = list[Fold]()
    for stages in races:
        searched = stages.search()
        folds.append(Fold(stages, searched, stages.confirm(searched, 1.0)))
    return nested_answer(folds, name, {**settings, "folds": len(folds)})


def _plan(trainings: int, folds: int) -> Plan:
    """Plan a race, or that of one outer fold, which picks one arm."""
    plan = make_plan(trainings // folds)
    return plan if folds == 1 else dataclasses.replace(plan, finalists=1)


def _check(
    trainings: int | None, holdout: float, seed: int, remedies: Sequence[str], folds: int
) -> None:
    integer("folds", folds, 1, _FOLDS)
    if trainings is not None:
        integer("trainings", trainings, 1, _MOST)
        make_plan(trainings // folds)
    rate("holdout", holdout)
    integer("seed", seed, 0, _LARGEST_SEED)
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
    pilot = seeds_of(seed)[0][:PILOT]

    def planned() -> int:
        one = lab.seconds(baseline(), pilot)
        count = affordable(budget, one, workers)
        make_plan(count)
        return count

    found = lab.kept_plan(budget, planned)
    return found if trainings is None else min(found, trainings)


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
