"""Groups: members that one engine can train together, with their recipes prepared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from torch import nn

from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Remedy
from mindgap.remedies.weight_decay import WeightDecay
from mindgap.training.vectorized.edits import check_remedy
from mindgap.training.vectorized.members import Member, build_all
from mindgap.training.vectorized.support import Unsupported


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
    return "the recipe holds validation samples out, others for each seed" if member.recipe.validation else ""


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
    shapes = tuple((name, tuple(p.shape), p.dtype, p.requires_grad) for name, p in model.named_parameters())
    hooks = tuple(repr(hook) for module in model.modules() for hook in module._forward_pre_hooks.values())
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
