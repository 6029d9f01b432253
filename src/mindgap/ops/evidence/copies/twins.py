"""Samples with equal inputs, whatever their targets."""

import torch
from torch import Tensor

from mindgap.core import Batch, Split, Subject, Which
from mindgap.ops.samples import sample_hashes


class _Unlabeled(Split):
    """The samples of a split, all with the same target."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def take(self, index: Tensor) -> Batch:
        return Batch(self.split.take(index).inputs, torch.zeros(len(index)), index)


def input_hashes(subject: Subject, which: Which) -> Tensor:
    """Hash the inputs of every sample, whatever its target; equal inputs have equal hashes.

    Args:
        subject: What is examined.
        which: The split.
    """
    other: Which = "test" if which == "train" else "train"
    like = None if subject.test is None else _Unlabeled(subject.split(other))
    return subject.cached(
        ("hashes of inputs", which),
        lambda: sample_hashes(_Unlabeled(subject.split(which)), like=like),
    )


def has_twin(subject: Subject, which: Which) -> Tensor:
    """Whether another training sample has the same inputs, for every sample of a split.

    Args:
        subject: What is examined.
        which: The split.
    """
    known = input_hashes(subject, "train")
    if which == "test":
        return torch.isin(input_hashes(subject, "test"), known)
    _, inverse, counts = known.unique(return_inverse=True, return_counts=True)
    repeated: Tensor = counts[inverse] > 1
    return repeated
