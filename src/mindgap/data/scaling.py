"""Zero mean and unit variance, learned on the training part only."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.core.errors import InputError

CONSTANT = 1e-10  # a column whose spread is below this part of its mean is rounding, not data


def moments(train: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every column in float64; constant columns get deviation one.

    >>> moments(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    (tensor([2., 5.], dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
    """
    if train.shape[0] == 0:
        raise InputError("train must hold at least one sample, got none. Pass the training part.")
    values = train.double()
    mean, spread = values.mean(dim=0), values.std(dim=0, correction=0)
    return mean, torch.where(spread > CONSTANT * mean.abs(), spread, torch.ones_like(spread))


def standardize(train: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Shift and scale ``train`` to mean zero and variance one by column, and ``others`` by the same amounts.

    A column that is constant in ``train`` becomes zero there and is only shifted elsewhere. The answer is a tuple, also
    for one argument; the data types are kept.

    >>> train, test = standardize(torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0]]))
    >>> train.tolist(), test.tolist()
    ([[-1.0], [1.0]], [[3.0]])
    """
    for tensor in (train, *others):
        _check(tensor, train)
    mean, spread = moments(train)
    return tuple(((tensor.double() - mean) / spread).to(tensor.dtype) for tensor in (train, *others))


def _check(tensor: Tensor, train: Tensor) -> None:
    if not tensor.is_floating_point():
        raise InputError(f"Tensors must hold floating point numbers, got {tensor.dtype}. Convert with .float().")
    if tensor.shape[1:] != train.shape[1:]:
        raise InputError(
            f"Tensors must have the columns of train, {tuple(train.shape[1:])}, got {tuple(tensor.shape[1:])}. "
            "Pass the same features."
        )
