"""Norms and differences of weights, by layer and in total, in double precision.

One function over many slices of its arguments: in one pass where it can be, one by one where not.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map


def norms(weights: Mapping[str, Tensor]) -> dict[str, float]:
    """The Euclidean norm of every tensor."""
    return {name: float(value.detach().double().norm()) for name, value in weights.items()}


def total(parts: Mapping[str, float]) -> float:
    """The Euclidean norm of the whole from those of its parts."""
    return math.sqrt(math.fsum(value * value for value in parts.values()))


def displacement(model: nn.Module, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights minus initial weights."""
    return {name: p.detach() - initial[name].to(p) for name, p in model.named_parameters()}


def count(model: nn.Module) -> dict[str, int]:
    """Number of weights by name; a tensor used twice counts once."""
    return {name: p.numel() for name, p in model.named_parameters()}


def all_at_once(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """``function`` of the slices of ``arguments`` (tensors, or tuples and dicts of them) along their first dimension.

    A model whose control flow hangs on values, or that draws random numbers, cannot be run in one
    pass.

    >>> all_at_once(
    ...     lambda row, pair: row.sum() + pair["b"],
    ...     torch.ones(2, 3),
    ...     {"b": torch.tensor([1.0, 2.0])},
    ... ).tolist()
    [4.0, 5.0]
    >>> all_at_once(
    ...     lambda row: row * 2 if float(row) > 1 else row, torch.tensor([1.0, 2.0])
    ... ).tolist()
    [1.0, 4.0]
    """
    count = len(tree_leaves(arguments)[0])
    if count > 1:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # an operation without a batching rule is slow, not wrong
                found: Tensor = torch.vmap(function)(*arguments)
                return found
        except RuntimeError:
            pass
    rows = [tree_map(lambda value, place=place: value[place], arguments) for place in range(count)]
    return torch.stack([function(*row) for row in rows])
