"""Members: what the user asked for, one recipe, one list of remedies and one seed each."""

from __future__ import annotations

import dataclasses
import math
import operator
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.purity import seeded
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Remedy


@dataclasses.dataclass(frozen=True)
class Member:
    """One training run, and its place in the answer."""

    place: int
    recipe: Recipe
    remedies: tuple[Remedy, ...]
    seed: int


def members_of(
    recipe: Recipe, seeds: Sequence[int], remedies: Sequence[Any], settings: dict[str, Any], weights: Tensor | None
) -> list[Member]:
    """One member a seed; ``settings`` maps a field of the recipe to one number a member or to None."""
    numbers = [operator.index(seed) for seed in seeds]
    rows = {name: _numbers(name, values, numbers) for name, values in settings.items() if values is not None}
    if rows and not isinstance(recipe.optimizer, str):
        raise InputError(
            f"{next(iter(rows))} of members must go with an optimizer named in the recipe, got a callable, which sets "
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
            f"{name} must be {len(seeds)} finite numbers, one a seed, got {len(found)}. Give one number a member."
        )
    return found


def _checked_weights(weights: Tensor, recipe: Recipe, members: int) -> Tensor:
    samples = len(recipe.splits()[0])
    weights = torch.as_tensor(weights)
    if weights.shape != (members, samples) or not torch.isfinite(weights).all() or (weights < 0).any():
        raise InputError(
            f"sample_weights must be finite numbers that are not negative, of shape ({members}, {samples}), members × "
            f"samples, got the shape {tuple(weights.shape)}. Give one row a member."
        )
    return weights


def _remedies(remedies: Sequence[Any], members: int) -> list[tuple[Remedy, ...]]:
    if all(isinstance(remedy, Remedy) for remedy in remedies):
        return [_on(remedies)] * members
    if len(remedies) != members:
        raise InputError(
            f"remedies must be one list for all members or {members} lists, one a member, got {len(remedies)}. "
            "Give one list a member."
        )
    return [_on(own) for own in remedies]


def _on(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    return tuple(remedy for remedy in remedies if remedy.on)
