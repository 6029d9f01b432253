"""The plane of two features: local variance on a grid, samples on top, and where the model changes its mind."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core.arguments import generator
from mindgap.ops.variance import Task
from mindgap.ops.variance_map import grid_over, variance_at
from mindgap.report.variance_parts import Plane

CELLS = 41  # lines each way: fine enough for the eye, and a page stays small
MOST_POINTS = 1000  # drawn; more would hide the map below them
MOST_GROUPS = 6  # colours that can be told apart
DIGITS = 4  # that matter in a drawing


def plane_of(
    points: Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    k: int,
    task: Task,
    say: Callable[[Tensor], str],
    names: tuple[str, ...] = ("first feature", "second feature"),
    outputs: Callable[[Tensor], Tensor] | None = None,
) -> Plane:
    """The map around samples of shape (n, 2); ``outputs`` gives a classifier's logits at any places."""
    grid = grid_over(points, CELLS)
    variance = variance_at(grid.places, points, labels, k=k, task=task)
    margins = [] if outputs is None else _margins(outputs(grid.places))
    shown = torch.randperm(len(points), generator=generator(0))[:MOST_POINTS].sort().values
    targets, groups = _groups(labels[shown], task, say)
    return Plane(
        names=names,
        x=_short(grid.x),
        y=_short(grid.y),
        variance=tuple(map(_short, grid.rows(variance))),
        points=tuple(map(_short, points[shown])),
        targets=_short(targets),
        weights=_short(weights[shown]),
        labels=groups,
        margins=tuple(tuple(map(_short, grid.rows(margin))) for margin in margins),
    )


def _margins(outputs: Tensor) -> list[Tensor]:
    """What is zero where the answer changes: a logit, a difference of two, or each minus the largest other."""
    logits = outputs.detach().double().cpu().reshape(len(outputs), -1)
    if logits.shape[1] <= 2:
        return [logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)]
    if logits.shape[1] > MOST_GROUPS:
        return []
    others = logits.repeat(logits.shape[1], 1, 1)
    others.diagonal(dim1=0, dim2=2).fill_(-torch.inf)
    return list((logits.T - others.amax(2)).unbind(0))


def _groups(labels: Tensor, task: Task, say: Callable[[Tensor], str]) -> tuple[Tensor, tuple[str, ...]]:
    """The number of every sample's label among all of them and their names; values are their own."""
    if task == "regression":
        return labels.double().reshape(len(labels), -1)[:, 0], ()
    kinds, number = labels.unique(dim=0, return_inverse=True)
    if len(kinds) > MOST_GROUPS:
        return torch.zeros(len(labels)), ("samples",)
    return number, tuple(say(kind) for kind in kinds)


def _short(values: Tensor) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())
