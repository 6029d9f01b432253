"""The plane of two features: local variance as a map, with samples and a decision boundary."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mindgap.core import Contour, Heatmap, Points, generator
from mindgap.ops.variance.by_k import grid_over, variance_at
from mindgap.ops.variance.local import Task

CELLS = 41  # lines each way: fine enough for the eye, and a page stays small
MOST_POINTS = 1000  # drawn; more would hide the map below them
MOST_GROUPS = 6  # colors that can be told apart
DIGITS = 4  # that matter in a drawing


def plane_of(
    points: Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    k: int,
    task: Task,
    say: Callable[[Tensor], str],
    names: Sequence[str] = ("first feature", "second feature"),
    outputs: Callable[[Tensor], Tensor] | None = None,
) -> Heatmap:
    """Draw the local variance around samples of two features.

    Args:
        points: Samples of shape (n, 2).
        labels: Their labels.
        weights: Heavier samples are drawn larger.
        k: Number of neighbors.
        task: What the labels are.
        say: Puts a label in words.
        names: What the two features are called.
        outputs: Gives a classifier's logits at any places; adds its decision boundary.
    """
    grid = grid_over(points, CELLS)
    variance = variance_at(grid.nodes, points, labels, k=k, task=task)
    margins = [] if outputs is None else _margins(outputs(grid.nodes))
    shown = torch.randperm(len(points), generator=generator(0))[:MOST_POINTS].sort().values
    drawn = (
        f"{len(shown):,} of the {len(points):,} samples are drawn"
        if len(shown) < len(points)
        else "The samples lie on top"
    )
    boundary = "; the black line is where the model changes its answer" if margins else ""
    return Heatmap(
        title="Local variance over the plane",
        caption=(
            f"Color: variance of the labels of the {k} samples nearest to a place. {drawn}, larger "
            f"where heavier{boundary}."
        ),
        x_label=names[0],
        y_label=names[1],
        x=_short(grid.x),
        y=_short(grid.y),
        z=[_short(row) for row in grid.rows(variance)],
        z_label="local variance",
        points=_groups(points[shown], labels[shown], weights[shown], task, say),
        contours=[
            Contour(name="decision boundary", z=[_short(row) for row in grid.rows(margin)])
            for margin in margins
        ],
    )


def _margins(outputs: Tensor) -> list[Tensor]:
    """Return maps that are zero where the answer changes: a logit minus the largest other."""
    logits = outputs.detach().double().cpu().reshape(len(outputs), -1)
    if logits.shape[1] <= 2:
        return [logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)]
    if logits.shape[1] > MOST_GROUPS:
        return []
    others = logits.repeat(logits.shape[1], 1, 1)
    others.diagonal(dim1=0, dim2=2).fill_(-torch.inf)
    return list((logits.T - others.amax(2)).unbind(0))


def _groups(
    points: Tensor, labels: Tensor, weights: Tensor, task: Task, say: Callable[[Tensor], str]
) -> list[Points]:
    """Return one group per label, or one group colored by value; many labels share one color."""
    if task == "regression":
        values = labels.double().reshape(len(labels), -1)[:, 0]
        return [_group("", points, weights, _short(values))]
    kinds, number = labels.unique(dim=0, return_inverse=True)
    if len(kinds) > MOST_GROUPS:
        return [_group("samples", points, weights)]
    return [
        _group(say(kind), points[number == place], weights[number == place])
        for place, kind in enumerate(kinds)
    ]


def _group(name: str, points: Tensor, weights: Tensor, values: Sequence[float] = ()) -> Points:
    x, y = (_short(points[:, k]) for k in (0, 1))
    return Points(name=name, x=x, y=y, weights=_short(weights), values=values)


def _short(values: Tensor) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]
