"""A transform of the inputs that is fitted on the prior's part of the data."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mindgap.core import Batch, InputError, Inputs, Split

Transform = Callable[[Split], Callable[..., Any]]


class TransformedSplit(Split):
    """The samples of a split, with transformed inputs.

    Args:
        whole: The samples.
        function: Takes the inputs of a batch as the model does, and returns what the model gets.
    """

    def __init__(self, whole: Split, function: Callable[..., Any]) -> None:
        self.whole, self.function = whole, function

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def targets(self) -> Tensor:
        """All targets in order, which no transform changes."""
        return self.whole.targets

    def take(self, index: Tensor) -> Batch:
        """Read and transform these samples."""
        batch = self.whole.take(index)
        made = self.function(*((batch.inputs,) if isinstance(batch.inputs, dict) else batch.inputs))
        return Batch(_as_inputs(made), batch.target, index)


def _as_inputs(made: Any) -> Inputs:
    if isinstance(made, Tensor):
        return (made,)
    if isinstance(made, tuple | dict):
        return made
    raise InputError(
        "A fitted transform must return a tensor, a tuple of tensors or a dict of them, got "
        f"{type(made).__name__}. Return what the model takes."
    )


def standardize(split: Split) -> Callable[[Tensor], Tensor]:
    """Fit means and standard deviations of the inputs, for ``certify(…, transform=standardize)``.

    Args:
        split: The samples to fit, each with one tensor as its input.

    Returns:
        A function that gives these samples the mean 0 and the standard deviation 1, feature by
        feature. A constant feature becomes 0.

    >>> from mindgap.core import as_split
    >>> fitted = standardize(as_split((torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.zeros(2))))
    >>> fitted(torch.tensor([[3.0, 5.0]])).tolist()
    [[1.0, 0.0]]
    """
    batches = [batch.inputs for batch in split.batches(1024)]
    if isinstance(batches[0], dict) or len(batches[0]) != 1:
        raise InputError(
            "standardize must get samples with one tensor as their input, got several. Write a "
            "transform of your own."
        )
    inputs = torch.cat([given[0] for given in batches if isinstance(given, tuple)])
    mean, spread = inputs.mean(0), inputs.std(0, correction=0)
    scale = torch.where(spread > 0, spread, 1.0)
    return lambda given: (given - mean) / scale
