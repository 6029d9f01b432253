"""Which samples of one split stand in another, by exact integer hashes of their bits."""

import torch
from torch import Tensor

from mindgap.core import Split


def overlap(held: Split, train: Split, batch_size: int = 4096) -> float:
    """The share of held-out samples that also stand, with the same target, in the training data."""
    mine, theirs = sample_hashes(held, batch_size), sample_hashes(train, batch_size)
    return float(torch.isin(mine, theirs).double().mean())


def sample_hashes(split: Split, batch_size: int = 4096) -> Tensor:
    """One integer a sample, of its inputs and its target: equal samples have equal ones, others almost never."""
    return torch.cat(
        [_hash([*_tensors(batch.inputs), batch.target]) for batch in split.batches(batch_size)]
    )


def _tensors(inputs: tuple[Tensor, ...] | dict[str, Tensor]) -> list[Tensor]:
    return [inputs[name] for name in sorted(inputs)] if isinstance(inputs, dict) else list(inputs)


def _hash(tensors: list[Tensor]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(len(tensors[0]), dtype=torch.int64)
    for tensor in tensors:
        bits = tensor.detach().cpu().double().reshape(len(tensor), -1).view(torch.int64)
        odd = torch.randint(-(2**62), 2**62, (bits.shape[1],), generator=generator) * 2 + 1
        mixed = bits ^ (bits >> 29)  # doubles of small integers differ in their high bits only
        total += (mixed * odd).sum(
            1
        )  # wraps around: exact arithmetic modulo 2**64, independent of the batch
    return total
