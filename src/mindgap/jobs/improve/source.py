"""Where the trainer of a race comes from: a recipe, a function that makes one, or one that trains."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from mindgap.core import InputError, Recipe, Task
from mindgap.jobs.sample.answer import Portable
from mindgap.runs.executors import AnyExecutor, LocalExecutor, SerialExecutor
from mindgap.training.race.of_recipe import Outer, RecipeTrainer
from mindgap.training.race.trainer import FunctionTrainer, Trainer

_MADE: dict[str, Trainer] = {}  # of this process, by the hash of their problem


@dataclasses.dataclass(frozen=True)
class Kept:
    """A trainer that travels with every trial."""

    trainer: Trainer

    def __call__(self) -> Trainer:
        """Return it."""
        return self.trainer


@dataclasses.dataclass(frozen=True)
class Made:
    """A trainer that every process makes for itself, from a function that makes the recipe."""

    problem: str
    make: Portable
    holdout: float
    seed: int
    outer: Outer | None

    def __call__(self) -> Trainer:
        """Make it, once per process."""
        if self.problem not in _MADE:
            recipe = _cut(_recipe(self.make.function), self.outer)
            _MADE[self.problem] = RecipeTrainer(recipe, self.holdout, self.seed)
        return _MADE[self.problem]


@dataclasses.dataclass(frozen=True)
class Called:
    """A trainer around a function of the user's, which every process loads for itself."""

    train: Portable
    settings: dict[str, Any]

    def __call__(self) -> Trainer:
        """Make it; the function and the data travel with every trial."""
        return FunctionTrainer(self.train.function, **self.settings)


def trainer_of(
    target: Any,
    *,
    retune: Any,
    holdout: float,
    seed: int,
    validation: Any,
    test: Any,
    loss: Any,
    task: Task | None,
    name: str,
    outer: Outer | None = None,
) -> tuple[Trainer, Callable[[], Trainer], str]:
    """Make the trainer of a target.

    Args:
        target: A recipe, a function without arguments that returns one, or a function
            ``train(seed, remedies) -> model``.
        retune: Settings to try, for a function that trains.
        holdout: Share of a recipe's training data to choose on.
        seed: Decides which samples these are.
        validation: Data to choose on, for a function that trains.
        test: Test data, for a function that trains.
        loss: The loss, for a function that trains.
        task: The task, for a function that trains.
        name: Tells it from others in the same store.
        outer: The outer fold to test on; None to test on the recipe's test data.

    Returns:
        The trainer, what makes it in other processes, and the hash of the problem.
    """
    if isinstance(target, Recipe) or _makes_recipe(target):
        _refuse(validation=validation, test=test, retune=retune or None)
        recipe = target if isinstance(target, Recipe) else _recipe(target)
        trainer: Trainer = RecipeTrainer(_cut(recipe, outer), holdout, seed)
        problem = trainer.identity()
        made = Made(problem, Portable(target), holdout, seed, outer)
        return trainer, Kept(trainer) if isinstance(target, Recipe) else made, problem
    if not callable(target):
        raise InputError(
            "improve needs a Recipe, a function that makes one, or a function train(seed, remedies) "
            f"-> model, got {type(target).__name__}. Pass one of them."
        )
    if outer is not None:
        raise InputError(
            "folds must go with a recipe, whose data can be divided, got a function that trains. Pass "
            "a Recipe, or leave folds out."
        )
    if validation is None or test is None:
        raise InputError(
            "A function that trains must come with validation=… and test=…, got it alone. Pass "
            "data that it does not train on."
        )
    settings = {"validation": validation, "test": test, "loss": loss, "task": task, "name": name}
    trainer = FunctionTrainer(target, **settings)
    return trainer, Called(Portable(target), settings), trainer.identity()


def _makes_recipe(target: Any) -> bool:
    """Whether a function takes no argument: a function that trains takes seed and remedies."""
    if not callable(target) or isinstance(target, type):
        return False
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return False
    return not any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in parameters)


def _recipe(make: Callable[..., Any]) -> Recipe:
    found = make()
    if not isinstance(found, Recipe):
        raise InputError(
            f"The function must return a mindgap.Recipe, got {type(found).__name__}. Return one."
        )
    return found


def _cut(recipe: Recipe, outer: Outer | None) -> Recipe:
    return recipe if outer is None else outer.cut(recipe)


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"{name} must be left out where there is a recipe, which holds all that is needed, "
                f"got {type(value).__name__}. Leave it out."
            )


def executor_for(source: Callable[[], Trainer], workers: int | None) -> AnyExecutor:
    """Choose worker processes for a function that makes a recipe, or where they are asked for."""
    if workers == 1 or (workers is None and not isinstance(source, Made)):
        return SerialExecutor()
    return LocalExecutor(workers)
