"""Which samples make which batch: a function of seed and epoch alone, the same in every loop of the house.

Hold out a share of the training data for choices, so that test data never has to serve.
"""

import torch
from torch import Tensor

from mindgap.core import InputError, Recipe, Split
from mindgap.data.splits import stratified_split

_STRIDE = 1_000_003  # a prime: seeds of different epochs do not meet for any usual number of epochs


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of all that is random in one epoch (epochs count from 1)."""
    return (seed * _STRIDE + epoch) % 2**63


def epoch_order(size: int, seed: int, epoch: int) -> Tensor:
    """The order in which an epoch visits the samples."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(epoch_seed(seed, epoch)))


def batches_of(size: int, batch_size: int, seed: int, epoch: int) -> list[Tensor]:
    """The batches of an epoch; a batch as large as the data keeps their order."""
    if batch_size >= size:
        return [torch.arange(size)]
    return list(epoch_order(size, seed, epoch).split(batch_size))


def hold_out(recipe: Recipe, seed: int) -> tuple[Recipe, Split | None]:
    """The recipe on the samples that stay, and those that were held out; class shares are kept."""
    if recipe.validation == 0:
        return recipe, None
    train, _ = recipe.splits()
    (held,) = stratified_split(train.targets, (round(recipe.validation * len(train)),), seed)
    stays = torch.ones(len(train), dtype=torch.bool).scatter(0, held, False)
    if not len(held) or not stays.any():
        raise InputError(
            f"validation must leave samples on both sides, got {recipe.validation} of "
            f"{len(train)}. Pass more data or "
            "another share."
        )
    weights = None if recipe.sample_weights is None else recipe.sample_weights[stays]
    rest = train.subset(stays.nonzero().flatten())
    return recipe.replace(train=rest, sample_weights=weights, validation=0.0), train.subset(held)
