"""Which samples an epoch visits, for the DataLoaders of other training loops."""

from collections.abc import Callable, Iterator

from torch import Tensor
from torch.utils.data import Sampler


class EpochSampler(Sampler[int]):
    """A sampler whose every pass is the next epoch.

    Lightning and Hugging Face tell it the epoch by ``set_epoch``, which counts from 0.

    Args:
        order: Takes the number of samples and of the epoch, from 1, and gives the places.
        samples: How many training samples there are.

    >>> import torch
    >>> sampler = EpochSampler(lambda samples, epoch: torch.full((samples,), epoch), samples=2)
    >>> list(sampler), list(sampler), len(sampler)
    ([1, 1], [2, 2], 2)
    """

    def __init__(self, order: Callable[[int, int], Tensor], samples: int) -> None:
        self.order, self.samples, self.epoch = order, samples, 0

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(self.order(self.samples, self.epoch).tolist())

    def set_epoch(self, epoch: int) -> None:
        """Tell how many epochs are complete.

        Args:
            epoch: The number of the epoch that begins, counted from 0.
        """
        self.epoch = epoch
