"""Outer folds: the samples of a recipe, each of which is test data once."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import Batch, InputError, Recipe
from mindgap.data.splits import stratified_folds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    """One of several outer folds.

    Args:
        number: Which one, from zero.
        count: How many there are.
        seed: Decides which samples are in which fold.
    """

    number: int
    count: int
    seed: int

    def cut(self, recipe: Recipe) -> Recipe:
        """Return the recipe with this fold as test data and all other samples as training data.

        Args:
            recipe: Its training and test samples are pooled.

        >>> x, y = torch.arange(8.0)[:, None], torch.tensor([0, 1] * 4)
        >>> recipe = Recipe(model=torch.nn.Identity, train=(x[:6], y[:6]), test=(x[6:], y[6:]))
        >>> folds = [Outer(number=k, count=2, seed=0).cut(recipe).splits() for k in range(2)]
        >>> [(len(train), len(test)) for train, test in folds]
        [(4, 4), (4, 4)]
        """
        if isinstance(recipe.sample_weights, Tensor) and recipe.test is not None:
            raise InputError(
                "folds must go with a recipe whose samples all have a weight, got sample_weights for "
                "the training samples alone. Join training and test data, or leave one of them out."
            )
        whole = _pooled(recipe)
        train, test = stratified_folds(whole.target, self.count, self.seed)[self.number]
        weights = recipe.sample_weights
        return recipe.replace(
            train=_data(whole, train, recipe.target or "labels"),
            test=_data(whole, test, recipe.target or "labels"),
            sample_weights=weights[train] if isinstance(weights, Tensor) else weights,
        )


def _pooled(recipe: Recipe) -> Batch:
    """Read all samples, those of a test set last."""
    parts = [split.take(torch.arange(len(split))) for split in recipe.splits() if split is not None]
    inputs = [part.inputs for part in parts]
    target = torch.cat([part.target for part in parts])
    first = inputs[0]
    if isinstance(first, dict):
        joined = {
            name: torch.cat([part[name] for part in inputs if isinstance(part, dict)])
            for name in first
        }
        return Batch(joined, target, torch.arange(len(target)))
    columns = zip(*(part for part in inputs if not isinstance(part, dict)), strict=True)
    return Batch(tuple(map(torch.cat, columns)), target, torch.arange(len(target)))


def _data(whole: Batch, places: Tensor, key: str) -> tuple[Tensor, ...] | dict[str, Tensor]:
    target = whole.target[places]
    if isinstance(whole.inputs, dict):
        return {**{name: v[places] for name, v in whole.inputs.items()}, key: target}
    return (*(value[places] for value in whole.inputs), target)
