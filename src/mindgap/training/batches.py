"""Which samples are held out and which make each batch, for every loop of the package.

Batches depend on the seed and the epoch alone. This is why a resumed run, an ensemble and the plain
loop see the same samples in the same order.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.core import InputError, Recipe, Remedy, Split, TrainingState
from mindgap.data.splits import stratified_split

_STRIDE = 1_000_003  # a prime above any usual number of epochs, so that no two runs share a seed


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of all that is random in one epoch; epochs count from 1."""
    return (seed * _STRIDE + epoch) % 2**63


def epoch_order(size: int, seed: int, epoch: int) -> Tensor:
    """Draw the order in which an epoch visits the samples."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(epoch_seed(seed, epoch)))


def batches_of(size: int, batch_size: int, seed: int, epoch: int) -> list[Tensor]:
    """Draw the batches of an epoch; a batch as large as the data keeps their order."""
    if batch_size >= size:
        return [torch.arange(size)]
    return list(epoch_order(size, seed, epoch).split(batch_size))


def chosen_order(
    remedies: Sequence[Remedy], states: Sequence[TrainingState], samples: int
) -> Tensor | None:
    """Ask the remedies which samples an epoch visits; None if none of them chooses.

    Args:
        remedies: The remedies that are on.
        states: Where training stands, for each.
        samples: How many training samples there are.
    """
    pairs = zip(remedies, states, strict=True)
    found = {one.name: order for one, at in pairs if (order := one.order(at, samples)) is not None}
    if len(found) > 1:
        raise InputError(
            f"One remedy at most must choose the samples of an epoch, got {', '.join(found)}. Leave "
            "one of them out."
        )
    return next(iter(found.values()), None)


def hold_out(recipe: Recipe, seed: int) -> tuple[Recipe, Split | None]:
    """Hold a share of the training data out for choices, so that no choice needs test data.

    Args:
        recipe: Its ``validation`` is the share to hold out.
        seed: Decides which samples are held out. Every class keeps its share.

    Returns:
        The recipe on the samples that stay, and the held-out samples (None if there are none).
    """
    if recipe.validation == 0:
        return recipe, None
    train, _ = recipe.splits()
    (held,) = stratified_split(train.targets, (round(recipe.validation * len(train)),), seed)
    stays = torch.ones(len(train), dtype=torch.bool).scatter(0, held, False)
    if not len(held) or not stays.any():
        raise InputError(
            f"validation must leave samples on both sides, got {recipe.validation} of "
            f"{len(train)}. Pass more data or another share."
        )
    weights = recipe.sample_weights
    if isinstance(weights, Tensor):
        weights = weights[stays]
    rest = train.subset(stays.nonzero().flatten())
    return recipe.replace(train=rest, sample_weights=weights, validation=0.0), train.subset(held)
