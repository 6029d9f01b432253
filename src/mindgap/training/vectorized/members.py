"""Members: what the user asked for, one recipe, one list of remedies and one seed each.

Groups: members that one engine can train together, with their recipes prepared.
"""

import dataclasses
import math
import operator
import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mindgap.core import InputError, Recipe, Remedy, seeded
from mindgap.remedies.weight_decay import WeightDecay
from mindgap.training.vectorized.problem import Unsupported
from mindgap.training.vectorized.remedies import check_remedy


@dataclasses.dataclass(frozen=True)
class Member:
    """One training run, and its place in the answer."""

    place: int
    recipe: Recipe
    remedies: tuple[Remedy, ...]
    seed: int


def members_of(
    recipe: Recipe,
    seeds: Sequence[int],
    remedies: Sequence[Any],
    settings: dict[str, Any],
    weights: Tensor | None,
) -> list[Member]:
    """One member per seed; ``settings`` maps a field of the recipe to one number per member or to None."""
    numbers = [operator.index(seed) for seed in seeds]
    rows = {
        name: _numbers(name, values, numbers)
        for name, values in settings.items()
        if values is not None
    }
    if rows and not isinstance(recipe.optimizer, str):
        raise InputError(
            f"{next(iter(rows))} of members must go with an optimizer named in the recipe, got a "
            "callable, which sets "
            "its own. Write optimizer='sgd' or the like."
        )
    if weights is not None:
        rows["sample_weights"] = list(_checked_weights(weights, recipe, len(numbers)))
    lists = _remedies(remedies, len(numbers))
    changes = [{name: values[k] for name, values in rows.items()} for k in range(len(numbers))]
    return [
        Member(k, recipe.replace(**changes[k]) if changes[k] else recipe, lists[k], seed)
        for k, seed in enumerate(numbers)
    ]


def build_all(recipes: Sequence[Recipe], seeds: Sequence[int]) -> list[nn.Module]:
    """What ``recipe.build(seed)`` gives for each, with the user's generators guarded once and not for each."""
    models = []
    with seeded(0):
        for recipe, seed in zip(recipes, seeds, strict=True):
            _seed(seed)
            models.append(recipe.model())
    return models


def _seed(seed: int) -> None:
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)  # a hundred times faster than torch.manual_seed
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002


def _numbers(name: str, values: Any, seeds: list[int]) -> list[float]:
    found = [float(value) for value in values]
    if len(found) != len(seeds) or not all(math.isfinite(value) for value in found):
        raise InputError(
            f"{name} must be {len(seeds)} finite numbers, one a seed, got {len(found)}. Give one "
            "number per member."
        )
    return found


def _checked_weights(weights: Tensor, recipe: Recipe, members: int) -> Tensor:
    samples = len(recipe.splits()[0])
    weights = torch.as_tensor(weights)
    if (
        weights.shape != (members, samples)
        or not torch.isfinite(weights).all()
        or (weights < 0).any()
    ):
        raise InputError(
            f"sample_weights must be finite numbers that are not negative, of shape ({members}, "
            f"{samples}), members × "
            f"samples, got the shape {tuple(weights.shape)}. Give one row per member."
        )
    return weights


def _remedies(remedies: Sequence[Any], members: int) -> list[tuple[Remedy, ...]]:
    if all(isinstance(remedy, Remedy) for remedy in remedies):
        return [_on(remedies)] * members
    if len(remedies) != members:
        raise InputError(
            f"remedies must be one list for all members or {members} lists, one a member, got "
            f"{len(remedies)}. "
            "Give one list per member."
        )
    return [_on(own) for own in remedies]


def _on(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    return tuple(remedy for remedy in remedies if remedy.on)


@dataclasses.dataclass
class Group:
    """Members in the user's order; ``recipes`` are prepared by the remedies. ``reason`` says why not at once."""

    members: list[Member]
    recipes: list[Recipe]
    reason: str = ""


def groups_of(members: Sequence[Member]) -> list[Group]:
    """Members by data, loss, layers, optimizer, number of epochs and kinds of remedies."""
    groups: dict[Hashable, Group] = {}
    prepared, structures = Prepared(), Structures()
    for member in members:
        reason = _refusal(member)
        recipe = member.recipe if reason else prepared(member)
        key: Hashable = reason or _key(member, recipe, structures)
        group = groups.setdefault(key, Group([], [], reason))
        group.members.append(member)
        group.recipes.append(recipe)
    return list(groups.values())


def _refusal(member: Member) -> str:
    try:
        for remedy in member.remedies:
            check_remedy(remedy)
    except Unsupported as refusal:
        return str(refusal)
    return (
        "the recipe holds validation samples out, others for each seed"
        if member.recipe.validation
        else ""
    )


class Prepared:
    """Recipes after the remedies' ``prepare``, each computed once."""

    def __init__(self) -> None:
        self._last: tuple[Recipe, tuple[Remedy, ...], Recipe] | None = None

    def __call__(self, member: Member) -> Recipe:
        """The recipe that is trained."""
        last = self._last
        if last is None or last[0] is not member.recipe or last[1] != member.remedies:
            last = member.recipe, member.remedies, _prepare(member)
            self._last = last
        return last[2]


def _prepare(member: Member) -> Recipe:
    recipe = member.recipe
    for remedy in member.remedies:
        if type(remedy).prepare is not Remedy.prepare:
            recipe = remedy.prepare(recipe, recipe.splits()[0])
    return recipe


class Structures:
    """What a model factory makes, in words; a factory is tried once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], nn.Module], Hashable]] = {}

    def __call__(self, recipe: Recipe, seed: int) -> Hashable:
        """Layers, shapes and masks of the factory's models."""
        if id(recipe.model) not in self._known:
            (model,) = build_all([recipe], [seed])
            self._known[id(recipe.model)] = recipe.model, _described(model)
        return self._known[id(recipe.model)][1]


def _described(model: nn.Module) -> Hashable:
    shapes = tuple(
        (name, tuple(p.shape), p.dtype, p.requires_grad) for name, p in model.named_parameters()
    )
    hooks = tuple(
        repr(hook) for module in model.modules() for hook in module._forward_pre_hooks.values()
    )
    return repr(model), shapes, hooks


def _key(member: Member, recipe: Recipe, structures: Structures) -> Hashable:
    same = (recipe.train, recipe.test, recipe.loss, recipe.optimizer, recipe.schedule)
    numbers = (recipe.momentum, recipe.epochs, recipe.batch_size, recipe.task, recipe.target)
    weighted = recipe.sample_weights is not None
    remedies = tuple(_kind(remedy) for remedy in member.remedies)
    return (*map(_identity, same), *numbers, weighted, remedies, structures(recipe, member.seed))


def _identity(value: Any) -> Hashable:
    return value if isinstance(value, str) else id(value)


def _kind(remedy: Remedy) -> Hashable:
    return type(remedy), isinstance(remedy, WeightDecay) and remedy.decoupled
