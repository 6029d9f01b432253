"""Split: samples in a fixed order, whatever the user holds them in."""

import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from mindgap.core.errors import InputError

Inputs = tuple[Tensor, ...] | dict[str, Tensor]
TARGET_NAMES = ("labels", "label", "targets", "target", "y")


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some samples.

    Args:
        inputs: What the model takes: positional inputs as a tuple, or named ones as a dict.
        target: What it should return.
        index: Places of the samples in the split.

    >>> Batch((torch.zeros(2, 3),), torch.tensor([0, 1]), torch.tensor([5, 9])).index.tolist()
    [5, 9]
    """

    inputs: Inputs
    target: Tensor
    index: Tensor


class Split(abc.ABC):
    """An ordered, finite set of samples that can be read any number of times.

    >>> from mindgap.core import as_split
    >>> split = as_split((torch.zeros(5, 2), torch.arange(5)))
    >>> isinstance(split, Split), len(split), split.take(torch.tensor([3])).target.item()
    (True, 5, 3)
    """

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def take(self, index: Tensor) -> Batch:
        """Read the samples at these places."""

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[Batch]:
        """Read all samples in batches.

        Args:
            size: Samples per batch.
            order: Places of the samples to read, in this order; all if None.
        """
        order = torch.arange(len(self)) if order is None else order
        for index in order.split(size):
            yield self.take(index)

    @property
    def targets(self) -> Tensor:
        """All targets in order."""
        return torch.cat([batch.target for batch in self.batches(1024)])

    def subset(self, index: Tensor) -> "Split":
        """Return the samples at these places as a split of their own."""
        return _SubsetSplit(self, index)


class _TensorSplit(Split):
    """Samples in memory, as tensors."""

    def __init__(self, inputs: Inputs, target: Tensor) -> None:
        self.inputs, self.target = inputs, target

    def __len__(self) -> int:
        return len(self.target)

    def take(self, index: Tensor) -> Batch:
        """Take the rows at these places."""
        if isinstance(self.inputs, dict):
            return Batch(
                {name: value[index] for name, value in self.inputs.items()},
                self.target[index],
                index,
            )
        return Batch(tuple(value[index] for value in self.inputs), self.target[index], index)

    @property
    def targets(self) -> Tensor:
        """All targets in order."""
        return self.target

    def subset(self, index: Tensor) -> Split:
        """Copies of the rows at these places."""
        batch = self.take(index)
        return _TensorSplit(batch.inputs, batch.target)


class DatasetSplit(Split):
    """Samples of a map-style data set, collated as its loader does."""

    def __init__(
        self, dataset: Any, collate: Any = default_collate, target: str | None = None
    ) -> None:
        self.dataset, self.collate, self.target_name = dataset, collate, target

    def __len__(self) -> int:
        return len(self.dataset)

    def take(self, index: Tensor) -> Batch:
        """Read and collate these samples."""
        inputs, target = part(
            self.collate([self.dataset[i] for i in index.tolist()]), self.target_name
        )
        return Batch(inputs, target, index)


class _SubsetSplit(Split):
    """Some samples of another split."""

    def __init__(self, whole: Split, index: Tensor) -> None:
        self.whole, self.index = whole, index

    def __len__(self) -> int:
        return len(self.index)

    def take(self, index: Tensor) -> Batch:
        """Read the samples from the whole split."""
        batch = self.whole.take(self.index[index])
        return Batch(batch.inputs, batch.target, index)


def part(batch: Any, target: str | None = None) -> tuple[Inputs, Tensor]:
    """Separate a batch into what the model takes and the target.

    Args:
        batch: A tuple that ends with the target, or a mapping.
        target: The key of the target in a mapping; one of the usual keys if None.

    >>> inputs, label = part({"pixels": [[1.0, 2.0]], "label": [1]})
    >>> list(inputs), label.tolist()
    (['pixels'], [1])
    """
    if isinstance(batch, Mapping):
        names = [target] if target else [name for name in TARGET_NAMES if name in batch]
        if not names or names[0] not in batch:
            wanted = target or f"one of {', '.join(TARGET_NAMES)}"
            raise InputError(
                f"A dict batch must hold its target under {wanted}, got "
                f"the keys {', '.join(map(str, batch))}. Rename the key or pass target='…'."
            )
        return {k: as_tensor(v) for k, v in batch.items() if k != names[0]}, as_tensor(
            batch[names[0]]
        )
    if isinstance(batch, Sequence) and len(batch) >= 2:
        _refuse_key(target)
        *inputs, last = batch
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return {k: as_tensor(v) for k, v in inputs[0].items()}, as_tensor(last)
        return tuple(as_tensor(item) for item in inputs), as_tensor(last)
    raise InputError(
        "A batch must be a tuple (inputs, target) or a dict with a target, got "
        f"{type(batch).__name__}. Give the data with its targets."
    )


def _refuse_key(target: str | None) -> None:
    """Refuse the key of the targets where a batch is a tuple, which would ignore it."""
    if target is not None:
        raise InputError(
            f"target must be left out where the targets come last in a tuple, got {target!r}. "
            "Leave it out, or pass the data as a dict."
        )


def as_tensor(value: Any) -> Tensor:
    """Make a tensor of a tensor, array, sequence or data frame.

    Memory that NumPy may not write is copied, because torch would write to it.

    >>> as_tensor([1, 2])
    tensor([1, 2])
    """
    if isinstance(value, Tensor):
        return value
    try:
        array = np.asarray(value)
        return torch.from_numpy(array.copy() if not array.flags.writeable else array)
    except TypeError as error:
        raise InputError(
            f"Data must be numbers in a tensor or array, got {type(value).__name__} that NumPy "
            f"reads as {np.asarray(value).dtype}. Encode it as numbers first."
        ) from error
    except ValueError as error:
        raise InputError(
            f"Data must be one tensor or array, got {type(value).__name__} of several shapes. Give "
            "several inputs one after the other, as in (first, second, targets)."
        ) from error


def as_split(data: Any, target: str | None = None, what: str = "training data") -> Split:
    """Wrap data of any kind as a split, and check that it holds samples.

    Args:
        data: A tuple of tensors or arrays that ends with the targets, a dict of them, a Dataset, a
            DataLoader, or a list of samples that are tuples ``(input, target)`` or dicts.
        target: The key of the targets, where batches are dicts.
        what: The name of the data in errors.

    >>> split = as_split(([[1.0], [2.0], [3.0]], [0, 1, 0]))
    >>> len(split), split.take(torch.tensor([2])).inputs
    (3, (tensor([[3.]], dtype=torch.float64),))
    >>> len(as_split([(torch.ones(2), 0), (torch.zeros(2), 1)]))
    2
    """
    split = _wrap(data, target, what)
    if len(split) == 0:
        raise InputError(f"The {what} must hold at least one sample, got none. Pass more data.")
    if isinstance(split, _TensorSplit):
        _check_tensors(split, what)
    return split


def _wrap(data: Any, target: str | None, what: str) -> Split:
    if isinstance(data, Split):
        return data
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset) or data.batch_size is None:
            return _stack(list(data), target)
        return _of_dataset(data.dataset, data.collate_fn, target)
    if isinstance(data, IterableDataset):
        return _stack(list(DataLoader(data, batch_size=256)), target)
    if _is_samples(data):
        return _stack([_collated(data, what)], target)
    if isinstance(data, Mapping) or (isinstance(data, tuple | list) and len(data) >= 2):
        return _TensorSplit(*part(data, target))
    if (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not isinstance(data, Tensor | np.ndarray | tuple)
    ):
        return _of_dataset(data, default_collate, target)
    raise InputError(
        f"The {what} must be a tuple (inputs, targets) of tensors or arrays, a dict, a list of "
        f"samples, a Dataset or a DataLoader, got {type(data).__name__}. Give the inputs together "
        "with their targets."
    )


def _is_samples(data: Any) -> bool:
    """Tell a list of samples from a list [inputs, targets], whose parts are no tuples or dicts."""
    if not isinstance(data, list) or not data:
        return False
    return all(isinstance(item, Mapping) for item in data) or all(
        isinstance(item, tuple) and len(item) >= 2 for item in data
    )


def _collated(samples: list[Any], what: str) -> Any:
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError, KeyError) as error:
        raise InputError(
            f"The {what} must be a list of samples with the same keys and shapes, got one that "
            f"cannot be joined to a batch ({' '.join(str(error).split())[:160]}). Pad or resize the "
            "samples, or encode them as numbers."
        ) from error


def _of_dataset(dataset: Any, collate: Any, target: str | None) -> Split:
    if (
        isinstance(dataset, TensorDataset)
        and collate is default_collate
        and len(dataset.tensors) >= 2
    ):
        _refuse_key(target)
        return _TensorSplit(tuple(dataset.tensors[:-1]), dataset.tensors[-1])
    return DatasetSplit(dataset, collate, target)


def _stack(batches: list[Any], target: str | None) -> Split:
    if not batches:
        return _TensorSplit((torch.empty(0),), torch.empty(0))
    parted = [part(batch, target) for batch in batches]
    targets = torch.cat([label for _, label in parted])
    columns = [
        inputs if isinstance(inputs, dict) else dict(enumerate(inputs)) for inputs, _ in parted
    ]
    joined: dict[Any, Tensor] = {}
    for name in columns[0]:
        joined[name] = torch.cat([column[name] for column in columns])  # type: ignore[index]
    return _TensorSplit(
        joined if isinstance(parted[0][0], dict) else tuple(joined.values()), targets
    )


def _check_tensors(split: _TensorSplit, what: str) -> None:
    values = split.inputs if isinstance(split.inputs, dict) else dict(enumerate(split.inputs))
    for name, value in values.items():
        label = f"inputs[{name!r}]" if isinstance(split.inputs, dict) else "inputs"
        if value.ndim == 0 or len(value) != len(split):
            raise InputError(
                f"The {what} must have as many {label} as targets ({len(split)}), got "
                f"{len(value) if value.ndim else 'a single number'}. Check that inputs and "
                "targets belong together."
            )
        check_finite(value, f"{what}: {label}")
    check_finite(split.target, f"{what}: targets")


def check_finite(value: Tensor, what: str) -> None:
    """Refuse a tensor that holds NaN or infinity, and say how many.

    Args:
        value: The tensor.
        what: Its name in the error.

    >>> check_finite(torch.tensor([1.0, torch.nan]), "inputs")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: The inputs must be finite numbers, got 1 of 2 values that are NaN \
or infinite. Remove or impute them.
    """
    if value.is_floating_point() and not torch.isfinite(value).all():
        bad = int((~torch.isfinite(value)).sum())
        raise InputError(
            f"The {what} must be finite numbers, got {bad} of {value.numel()} values that are NaN "
            "or infinite. Remove or impute them."
        )
