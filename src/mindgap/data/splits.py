"""Splits that keep the share of every class; standardization by the training part alone."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.core import InputError, generator, integer, validated


@validated
def stratified_split(
    targets: Tensor, parts: Sequence[int] | Sequence[float], seed: int = 0
) -> tuple[Tensor, ...]:
    """Split samples into disjoint parts in which every class has its share, up to rounding.

    Args:
        targets: One target per sample. Those of a regression are split at random.
        parts: Sizes (integers) or fractions (floats) of the parts; the rest is not used.
        seed: Seed of the split.

    Returns:
        The sorted indices of each part.

    >>> train, test = stratified_split(torch.tensor([0, 0, 0, 0, 1, 1]), (4, 2))
    >>> len(train), len(test), torch.tensor([0, 0, 0, 0, 1, 1])[test].tolist()
    (4, 2, [0, 1])
    >>> stratified_split(torch.zeros(10), (0.7, 0.7))
    Traceback (most recent call last):
    mindgap.core.errors.InputError: parts must be fractions that sum to at most 1, got 0.7, 0.7. Lower one of them.
    """
    left = _grouped_order(targets, seed)
    chosen = []
    for size in _sizes(parts, len(left)):
        taken = _evenly(len(left), size)
        chosen.append(left[taken].sort().values)
        left = left[~taken]
    return tuple(chosen)


@validated
def stratified_folds(targets: Tensor, folds: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Make folds for cross-validation in which every class has its share.

    Args:
        targets: One target per sample. Those of a regression are split at random.
        folds: Number of folds.
        seed: Seed of the split.

    Returns:
        Pairs of training and test indices; the test parts are disjoint and cover all samples.

    >>> labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1])
    >>> [labels[test].tolist() for _, test in stratified_folds(labels, 3)]
    [[0, 0, 1], [0, 0, 1], [0, 0, 1]]
    >>> stratified_folds(torch.zeros(300), 500)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: folds must be an integer from 2 to 300 (the number of samples), got 500. \
Lower folds or pass more data.
    """
    order = _grouped_order(targets, seed)
    integer("folds", folds, 2, len(order), "the number of samples", "pass more data")
    number = torch.arange(len(order)) % folds
    return [
        (order[number != fold].sort().values, order[number == fold].sort().values)
        for fold in range(folds)
    ]


def _grouped_order(targets: Tensor, seed: int) -> Tensor:
    """Draw a random order in which samples of one class follow one another."""
    if targets.ndim == 0 or len(targets) == 0:
        raise InputError(
            "targets must hold at least one sample, got none. Pass the targets of the data to "
            "split."
        )
    order = torch.randperm(len(targets), generator=generator(seed))
    if targets.is_floating_point() or targets.ndim > 1:
        return order
    return order[targets.cpu()[order].argsort(stable=True)]


def _evenly(count: int, size: int) -> Tensor:
    """Spread ``size`` of ``count`` places evenly: any run of places gets its share, up to one."""
    mask = torch.zeros(count, dtype=torch.bool)
    if size:
        mask[(2 * torch.arange(size) + 1) * count // (2 * size)] = True
    return mask


def _sizes(parts: Sequence[int] | Sequence[float], count: int) -> list[int]:
    if not parts:
        raise InputError(
            "parts must hold at least one size or fraction, got none. Pass for example (0.8, 0.2)."
        )
    if all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        return _checked_sizes([int(part) for part in parts], count)
    if all(isinstance(part, float) for part in parts):
        return _sizes_of_fractions([float(part) for part in parts], count)
    raise InputError(
        f"parts must be all integers (sizes) or all floats (fractions), got {_listed(parts)}. "
        "Choose one."
    )


def _checked_sizes(sizes: list[int], count: int) -> list[int]:
    if min(sizes) < 0 or sum(sizes) > count:
        raise InputError(
            f"parts must be sizes of at least 0 that sum to at most {count} (the number of "
            f"samples), got {_listed(sizes)}. Lower one of them or pass more data."
        )
    return sizes


def _sizes_of_fractions(fractions: list[float], count: int) -> list[int]:
    """Round running sums, not fractions, so that fractions that sum to one use every sample."""
    if not min(fractions) >= 0 or not sum(fractions) <= 1 + 1e-9:
        raise InputError(
            f"parts must be fractions that sum to at most 1, got {_listed(fractions)}. Lower one "
            "of them."
        )
    ends = [round(end * count) for end in itertools.accumulate(fractions, initial=0.0)]
    return [after - before for before, after in itertools.pairwise(ends)]


def _listed(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)


CONSTANT = 1e-10  # a column whose spread is below this share of its mean is rounding, not data


def moments(train: Tensor) -> tuple[Tensor, Tensor]:
    """Compute mean and standard deviation of every column; constant columns get deviation one.

    >>> moments(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    (tensor([2., 5.], dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
    """
    if train.shape[0] == 0:
        raise InputError("train must hold at least one sample, got none. Pass the training part.")
    values = train.double()
    mean, spread = values.mean(dim=0), values.std(dim=0, correction=0)
    return mean, torch.where(spread > CONSTANT * mean.abs(), spread, torch.ones_like(spread))


@validated
def standardize(train: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Shift and scale columns by the mean and standard deviation of the training part.

    Args:
        train: The training part, which gets mean zero and variance one. A column that is constant
            in it is only shifted.
        *others: Other parts, shifted and scaled by the same amounts.

    Returns:
        All parts with their data types, as a tuple also if there is only one.

    >>> train, test = standardize(torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0]]))
    >>> train.tolist(), test.tolist()
    ([[-1.0], [1.0]], [[3.0]])
    """
    for tensor in (train, *others):
        _check(tensor, train)
    mean, spread = moments(train)
    return tuple(
        ((tensor.double() - mean) / spread).to(tensor.dtype) for tensor in (train, *others)
    )


def _check(tensor: Tensor, train: Tensor) -> None:
    if not tensor.is_floating_point():
        raise InputError(
            f"Tensors must hold floating point numbers, got {tensor.dtype}. Convert with .float()."
        )
    if tensor.shape[1:] != train.shape[1:]:
        raise InputError(
            f"Tensors must have the columns of train, {tuple(train.shape[1:])}, got "
            f"{tuple(tensor.shape[1:])}. Pass the same features."
        )
