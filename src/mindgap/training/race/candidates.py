"""The candidates of a race: cells of the retuned baseline, and remedies at several strengths."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mindgap.core import Inputs, Recipe, Remedy, Symptom, Task, catalog
from mindgap.training.race.arm import RETUNED, Arm
from mindgap.training.race.plan import Plan

# Measured against a retuned baseline on seven data sets: what helped most often comes first.
# Dropout and more weight decay seldom did. Whatever is not named follows, the cheapest first.
TRY_FIRST = (
    "label-smoothing",
    "annealing",
    "weight-averaging",
    "early-stopping",
    "random-shifts",
    "sam",
    "mixup",
    "input-noise",
    "random-flips",
)
TRY_LAST = ("dropout", "weight-decay")
CLASSIFICATION = ("sam",)  # harmed regressions more often than it helped
PER_SYMPTOM = 3  # remedies that one finding brings in
# What varies between the arms of a remedy, where it is not the field that turns it off: an annealed
# learning rate pays if it begins higher.
_VARIED: dict[str, tuple[str, tuple[Any, ...]]] = {"annealing": ("peak", (2.0, 1.0, 4.0))}
_RATE, _DECAY = 3.0, 1e-3  # steps of the learning rate, and the first weight decay to try


def cells(recipe: Recipe) -> list[Arm]:
    """Change one setting of the baseline at a time: learning rate, epochs, weight decay.

    Args:
        recipe: The recipe as it is.
    """
    named = isinstance(recipe.optimizer, str)
    rates = [{"learning_rate": recipe.learning_rate * f} for f in (_RATE, 1 / _RATE)]
    decay = 10 * recipe.weight_decay or _DECAY
    changes: list[dict[str, Any]] = [
        *(rates if named else []),
        {"epochs": 2 * recipe.epochs},
        *([{"weight_decay": decay}] if named else []),
    ]
    return [retuned(recipe, change) for change in changes]


def extensions(recipe: Recipe, most: float = 2.0) -> Callable[[Arm, Sequence[Arm]], list[Arm]]:
    """Return the function that extends the grid around the best cell.

    It goes further along every setting that the best cell changed, and joins the best cell with
    each other cell that beat the baseline.

    Args:
        recipe: The recipe as it is.
        most: Largest cost of a cell. All remedies are trained on top of the best one, so its cost
            multiplies theirs.
    """

    def extend(best: Arm, better: Sequence[Arm]) -> list[Arm]:
        joined = [
            {**other.settings, **best.settings}
            for other in better
            if set(other.settings) - set(best.settings)
        ]
        further = [
            {**best.settings, name: _further(getattr(recipe, name), value)}
            for name, value in best.settings.items()
        ]
        made = [retuned(recipe, change) for change in [*further, *joined]]
        return [arm for arm in made if arm.cost <= most]

    return extend


def _further(start: float, value: float) -> float:
    """Take the same step once more."""
    if not start:  # no weight decay at first
        return 10 * value
    factor = value / start
    step = math.copysign(math.log(_RATE), math.log(factor)) if isinstance(value, float) else 0.0
    return value * math.exp(step) if step else 2 * value


def retuned(recipe: Recipe, settings: dict[str, Any]) -> Arm:
    """Make a cell of the retuned baseline."""
    ordered = {name: _short(settings[name]) for name in sorted(settings)}
    words = [f"{name.replace('_', ' ')} {value:g}" for name, value in ordered.items()]
    cost = ordered.get("epochs", recipe.epochs) / max(recipe.epochs, 1)
    return Arm(name=", ".join(words), group=RETUNED, cost=cost, settings=ordered)


def _short(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def remedies_to_try(
    symptoms: Iterable[Symptom],
    task: Task,
    inputs: Inputs,
    only: Sequence[str] | None = None,
) -> tuple[list[type[Remedy]], dict[str, str]]:
    """Order the remedies of the catalog: those that treat a symptom first, then by experience.

    Args:
        symptoms: What diagnoses found, the most important first.
        task: The task of the recipe.
        inputs: Inputs of a few samples.
        only: Names of remedies to choose from; all if None.

    Returns:
        The remedies that fit, and for each other one the reason why it does not.
    """
    known = [cls for cls in catalog("remedy").values() if issubclass(cls, Remedy)]
    chosen = [cls for cls in known if only is None or cls.name in only]
    misfits = {cls.name: cls().misfit(task, inputs) for cls in chosen}
    if task != "classification" and only is None:
        misfits |= dict.fromkeys(CLASSIFICATION, "It helps classifications only.")
    fitting = sorted((cls for cls in chosen if not misfits[cls.name]), key=_place)
    first = list[type[Remedy]]()
    for symptom in symptoms:
        treating = [cls for cls in fitting if symptom in cls.treats and cls not in first]
        first += treating[:PER_SYMPTOM]
    rest = [cls for cls in fitting if cls not in first]
    return [*first, *rest], {name: why for name, why in misfits.items() if why}


def _place(cls: type[Remedy]) -> tuple[int, float]:
    if cls.name in TRY_FIRST:
        return TRY_FIRST.index(cls.name), 0.0
    return len(TRY_FIRST) + (cls.name in TRY_LAST), cls.cost


def arms_of(
    remedies: Iterable[type[Remedy]], plan: Plan, fixes: Sequence[Arm] = ()
) -> Callable[[Arm], list[Arm]]:
    """Return the function that puts fixes and remedies on top of the retuned control.

    Args:
        remedies: The remedies to try, the most promising first.
        plan: Says how many of them, at how many strengths.
        fixes: Arms that correct a cause; they take the place of as many arms of remedies.
    """
    kept = list(fixes)[: plan.remedies]
    chosen = list(remedies)[: plan.remedies - math.ceil(len(kept) / plan.strengths)]

    def candidates(control: Arm) -> list[Arm]:
        arms = [arm for cls in chosen for arm in _strengths(cls, plan.strengths)]
        return [arm.on(control) for arm in [*kept, *arms]]

    return candidates


def _strengths(cls: type[Remedy], count: int) -> list[Arm]:
    field, values = _VARIED.get(cls.name) or (cls.strength, _strengths_of(cls))
    made = [cls(**{field: value}) for value in values[:count]]
    return [
        Arm(
            name=f"{_title(cls)} ({field.replace('_', ' ')} {value:g})",
            group=cls.name,
            cost=cls.cost,
            remedies=(remedy,),
        )
        for remedy, value in zip(made, values, strict=False)
    ]


def _title(cls: type[Remedy]) -> str:
    """Return the name in words; an abbreviation as it is written."""
    return cls.__name__ if cls.__name__.isupper() else cls.name.replace("-", " ")


def _strengths_of(cls: type[Remedy]) -> tuple[Any, ...]:
    """Choose three strengths of a remedy: its default, a stronger and a weaker one.

    >>> from mindgap.remedies import Dropout, EarlyStopping, WeightDecay
    >>> _strengths_of(EarlyStopping), _strengths_of(WeightDecay)
    ((5, 10, 2), (0.01, 0.03, 0.00333))
    >>> _strengths_of(Dropout)
    (0.3, 0.563, 0.125)
    """
    field = next(f for f in dataclasses.fields(cls) if f.name == cls.strength)
    value: Any = field.default
    highest = _highest(field.metadata)
    if isinstance(value, int):
        return value, 2 * value, value // 2 or 3 * value
    if value == highest:
        return value, value / 2, value / 4
    if highest is not None:
        odds = value / (highest - value)
        return value, *(_rounded(highest * f * odds / (1 + f * odds)) for f in (3, 1 / 3))
    return value, _rounded(3 * value), _rounded(value / 3)


def _highest(metadata: Any) -> float | None:
    ends = [metadata.get(key) for key in ("high", "below") if metadata.get(key) is not None]
    return float(min(ends)) if ends else None


def _rounded(value: float) -> float:
    """Keep three digits; of a number close to one, three digits of what is missing."""
    if 0.9 < value < 1:
        return round(1 - float(f"{1 - value:.3g}"), 12)
    return float(_short(value))
