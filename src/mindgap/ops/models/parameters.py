"""Norms and differences of weights, and functions mapped over many sets of weights."""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map


def norms(weights: Mapping[str, Tensor]) -> dict[str, float]:
    """Compute the Euclidean norm of every tensor.

    >>> norms({"weight": torch.tensor([[3.0, 4.0]])})
    {'weight': 5.0}
    """
    return {name: float(value.detach().double().norm()) for name, value in weights.items()}


def total(parts: Mapping[str, float]) -> float:
    """Combine the Euclidean norms of parts to that of the whole.

    >>> total({"weight": 3.0, "bias": 4.0})
    5.0
    """
    return math.sqrt(math.fsum(value * value for value in parts.values()))


def displacement(model: nn.Module, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Subtract the initial weights from a model's weights.

    Args:
        model: The trained model.
        initial: Its weights before training, by name.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> before = {name: value.clone() for name, value in model.state_dict().items()}
    >>> _ = model.weight.data.fill_(1), before["weight"].fill_(-1)
    >>> displacement(model, before)
    {'weight': tensor([[2.]])}
    """
    return {name: p.detach() - initial[name].to(p) for name, p in model.named_parameters()}


def count(model: nn.Module) -> dict[str, int]:
    """Count the weights by name; a tensor used twice counts once.

    >>> count(nn.Linear(3, 2))
    {'weight': 6, 'bias': 2}
    """
    return {name: p.numel() for name, p in model.named_parameters()}


def vmap_or_loop(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Map a function over the first dimension of its arguments, by ``torch.vmap`` if possible.

    A model whose control flow depends on values, or that draws random numbers, cannot be vmapped:
    its slices are computed one by one.

    Args:
        function: Takes one slice of each argument.
        *arguments: Tensors, or tuples and dicts of tensors, of equal length.

    >>> vmap_or_loop(
    ...     lambda row, pair: row.sum() + pair["b"],
    ...     torch.ones(2, 3),
    ...     {"b": torch.tensor([1.0, 2.0])},
    ... ).tolist()
    [4.0, 5.0]
    >>> vmap_or_loop(
    ...     lambda row: row * 2 if float(row) > 1 else row, torch.tensor([1.0, 2.0])
    ... ).tolist()
    [1.0, 4.0]
    """
    count = len(tree_leaves(arguments)[0])
    if count > 1:
        try:
            with warnings.catch_warnings():
                # torch warns of operations without a batching rule; they are slow, not wrong.
                warnings.simplefilter("ignore")
                found: Tensor = torch.vmap(function)(*arguments)
                return found
        except RuntimeError:
            pass
    rows = [tree_map(lambda value, i=i: value[i], arguments) for i in range(count)]
    return torch.stack([function(*row) for row in rows])
