"""Digests: which data and which tensors a training depends on, as short hashes."""

import hashlib

import torch
from torch import Tensor

from mindgap.core import Batch, Split


def digest_of(split: Split, *, targets: bool = True) -> str:
    """Hash the samples of a split.

    Args:
        split: The samples.
        targets: Whether their targets count.
    """
    found = hashlib.sha256()
    for batch in split.batches(1024):
        for value in _values(batch):
            found.update(digest(value).encode())
        if targets:
            found.update(digest(batch.target).encode())
    return found.hexdigest()[:16]


def _values(batch: Batch) -> list[Tensor]:
    inputs = batch.inputs
    return [inputs[k] for k in sorted(inputs)] if isinstance(inputs, dict) else list(inputs)


def digest(value: Tensor) -> str:
    """Hash a tensor: its type, shape and bits."""
    bits = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    head = f"{value.dtype} {tuple(value.shape)} ".encode()
    return hashlib.sha256(head + bits).hexdigest()[:16]
