"""Step sizes of every member in every epoch, as the recipe's own schedule gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core.recipe import Recipe
from mindgap.training.vectorized.rules import Number
from mindgap.training.vectorized.store import Store
from mindgap.training.vectorized.support import Unsupported


class Rates:
    """``at(epoch)`` is a number if all members step alike, else a tensor with one entry a parameter."""

    def __init__(self, recipe: Recipe, start: Sequence[float], store: Store) -> None:
        self._store = store
        self._distinct = sorted(set(start))
        self._which = torch.tensor([self._distinct.index(rate) for rate in start])
        self._table = schedule_table(recipe, self._distinct)
        self._last: tuple[list[float], Number] | None = None

    def at(self, epoch: int) -> Number:
        """The step sizes of an epoch (counted from 1)."""
        row = self._table[min(epoch, len(self._table)) - 1]
        if self._last is None or self._last[0] != row:
            self._last = row, per_parameter([row[k] for k in self._which.tolist()], self._store)
        return self._last[1]


def per_parameter(values: Sequence[float], store: Store) -> Number:
    """One number if all are equal, else one entry a parameter."""
    if len(set(values)) == 1:
        return float(values[0])
    return store.spread(torch.tensor(values, dtype=torch.float64).to(store.flat))


def schedule_table(recipe: Recipe, start: Sequence[float]) -> list[list[float]]:
    """Rows are epochs, columns the starting step sizes; one row if the recipe has no schedule."""
    if recipe.schedule is None:
        return [list(start)]
    optimizer = recipe.optimize([nn.Parameter(torch.zeros(1))])
    optimizer.param_groups[0]["lr"] = start[0]
    for rate in start[1:]:
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": rate})
    return _recorded(recipe, optimizer)


def _recorded(recipe: Recipe, optimizer: torch.optim.Optimizer) -> list[list[float]]:
    assert recipe.schedule is not None
    fixed = _others(optimizer)
    schedule, table = recipe.schedule(optimizer), []
    for _ in range(recipe.epochs):
        if _others(optimizer) != fixed:
            raise Unsupported("the schedule changes more than the step size")
        table.append([_number(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        _advance(schedule)
    return table or [[_number(group["lr"]) for group in optimizer.param_groups]]


def _advance(schedule: Any) -> None:
    try:
        schedule.step()
    except TypeError as error:
        raise Unsupported("the schedule looks at a measured value") from error


def _others(optimizer: torch.optim.Optimizer) -> list[list[Any]]:
    names = ("momentum", "betas", "weight_decay")
    return [[group.get(name) for name in names] for group in optimizer.param_groups]


def _number(rate: float | Tensor) -> float:
    return float(rate)
