"""Which samples make which batch: a function of seed and epoch alone, the same in every loop of the house."""

from __future__ import annotations

import torch
from torch import Tensor

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
