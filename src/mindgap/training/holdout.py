"""Hold out a share of the train data for choices, so that test data never has to serve."""

from __future__ import annotations

import torch

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.split import Split
from mindgap.data.splits import stratified_split


def hold_out(recipe: Recipe, seed: int) -> tuple[Recipe, Split | None]:
    """The recipe on the samples that stay, and those that were held out; class shares are kept."""
    if recipe.validation == 0:
        return recipe, None
    train, _ = recipe.splits()
    (held,) = stratified_split(train.targets, (round(recipe.validation * len(train)),), seed)
    stays = torch.ones(len(train), dtype=torch.bool).scatter(0, held, False)
    if not len(held) or not stays.any():
        raise InputError(
            f"validation must leave samples on both sides, got {recipe.validation} of {len(train)}. Pass more data or "
            "another share."
        )
    weights = None if recipe.sample_weights is None else recipe.sample_weights[stays]
    rest = train.subset(stays.nonzero().flatten())
    return recipe.replace(train=rest, sample_weights=weights, validation=0.0), train.subset(held)
