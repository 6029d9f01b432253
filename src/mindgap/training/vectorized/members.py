"""Members of an ensemble, and groups of members that one engine trains together."""

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
    """Make one member per seed.

    Args:
        recipe: What all members have in common.
        seeds: One per member.
        remedies: One list for all members, or one per member.
        settings: For fields of the recipe one number per member, or None.
        weights: Sample weights of shape (members, samples), or None.
    """
    numbers = [operator.index(seed) for seed in seeds]
    rows = {
        name: _numbers(name, values, numbers)
        for name, values in settings.items()
        if values is not None
    }
    if rows and not isinstance(recipe.optimizer, str):
        raise InputError(
            f"{next(iter(rows))} of members must go with an optimizer named in the recipe, got a "
            "callable, which sets its own. Write optimizer='sgd' or the like."
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
    """Build every recipe's model with its seed.

    Equals ``recipe.build(seed)`` for each, but saves and restores the global generators only once,
    which is most of the time for small models.
    """
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
            f"{name} must be {len(seeds)} finite numbers, one per seed, got {len(found)}. Give "
            "one number per member."
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
            f"{samples}), members × samples, got the shape {tuple(weights.shape)}. Give one row "
            "per member."
        )
    return weights


def _remedies(remedies: Sequence[Any], members: int) -> list[tuple[Remedy, ...]]:
    if all(isinstance(remedy, Remedy) for remedy in remedies):
        return [_on(remedies)] * members
    if len(remedies) != members:
        raise InputError(
            f"remedies must be one list for all members or {members} lists, one per member, got "
            f"{len(remedies)}. Give one list per member."
        )
    return [_on(own) for own in remedies]


def _on(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    return tuple(remedy for remedy in remedies if remedy.on)


@dataclasses.dataclass
class Group:
    """Members that are trained together.

    Args:
        members: In the user's order.
        recipes: Their recipes, prepared by their remedies.
        reason: Why they must be trained one after the other; empty if they need not be.
    """

    members: list[Member]
    recipes: list[Recipe]
    reason: str = ""


def groups_of(members: Sequence[Member]) -> list[Group]:
    """Group members that share data, loss, layers, optimizer, epochs and kinds of remedies."""
    groups: dict[Hashable, Group] = {}
    prepared, structures = _Prepared(), _Structures()
    for member in members:
        reason = _refusal(member)
        recipe = member.recipe if reason else prepared(member)
        key: Hashable = reason or _key(member, recipe, structures)
        group = groups.setdefault(key, Group([], [], reason))
        group.members.append(member)
        group.recipes.append(recipe)
    return list(groups.values())


def _refusal(member: Member) -> str:
    """Why a member must be trained alone, or an empty string."""
    for remedy in member.remedies:
        if hook := remedy.sequential_hook():
            return f"the remedy {remedy.name} acts during training (its hook {hook})"
        if remedy.validation:
            return f"the remedy {remedy.name} holds samples out"
    if member.recipe.validation:
        return "the recipe holds validation samples out, others for each seed"
    return ""


class _Prepared:
    """Recipes after the remedies' ``prepare``; equal neighbors share one.

    Thousands of members often have one recipe and equal remedies. With one prepared recipe for all
    of them, its model factory is tried once and not a thousand times.
    """

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
        if "prepare" in remedy.hooks():
            recipe = remedy.prepare(recipe, recipe.splits()[0])
    return recipe


class _Structures:
    """A description of the models that a factory makes; each factory is called once for it."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], nn.Module], Hashable]] = {}

    def __call__(self, recipe: Recipe, seed: int) -> Hashable:
        """Layers, shapes and hooks of the factory's models."""
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


def _key(member: Member, recipe: Recipe, structures: _Structures) -> Hashable:
    same = (recipe.train, recipe.test, recipe.loss, recipe.optimizer, recipe.schedule)
    numbers = (recipe.momentum, recipe.epochs, recipe.batch_size, recipe.task, recipe.target)
    weighted = recipe.sample_weights is not None
    remedies = tuple(_kind(remedy) for remedy in member.remedies)
    return (*map(_identity, same), *numbers, weighted, remedies, structures(recipe, member.seed))


def _identity(value: Any) -> Hashable:
    return value if isinstance(value, str) else id(value)


def _kind(remedy: Remedy) -> Hashable:
    """Members may differ in a remedy's numbers; all its other settings must agree."""
    numbers = (int, float)
    fixed = [
        (name, value)
        for name, value in remedy.parameters.items()
        if isinstance(value, bool) or not isinstance(value, numbers)
    ]
    return type(remedy), tuple(fixed)
