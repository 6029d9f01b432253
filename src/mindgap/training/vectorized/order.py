"""Batches of many members: the same samples as the plain loop draws, one row of places a member."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.training.order import epoch_seed


class Orders:
    """Which samples make which batch, for every member; one generator is reseeded, for making one is slow."""

    def __init__(self, samples: int, batch_size: int, seeds: tuple[int, ...]) -> None:
        self.samples, self.batch_size, self.seeds = samples, batch_size, seeds
        self._generator = torch.Generator()
        self._places = torch.arange(samples).repeat(len(seeds), 1)
        self._rows = list(self._places)

    @property
    def full(self) -> bool:
        """Whether a batch is the whole data, in its own order."""
        return self.batch_size >= self.samples

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First and last place of every batch in an epoch's order."""
        step = min(self.batch_size, self.samples)
        return [(start, min(start + step, self.samples)) for start in range(0, self.samples, step)]

    def places(self, epoch: int) -> Tensor:
        """The epoch's order of samples, (members, samples); the tensor is reused by the next call."""
        if not self.full:
            for row, seed in zip(self._rows, self.seeds, strict=True):
                self._generator.manual_seed(epoch_seed(seed, epoch))
                torch.randperm(self.samples, generator=self._generator, out=row)
        return self._places
