"""Local variance: how much the labels, or a function, vary around each sample."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from mindgap.core import InputError, implements
from mindgap.ops.neighbors.points import Metric, as_points, largest, rows_of
from mindgap.ops.neighbors.search import MEMORY, Method, Search, check_k
from mindgap.ops.neighbors.source import read
from mindgap.ops.variance.moments import Classes, Values

Task = Literal["auto", "classification", "multilabel", "regression"]
TASKS = ("auto", "classification", "multilabel", "regression")


@dataclasses.dataclass(frozen=True)
class LocalVariance:
    """What the k nearest neighbors of each of n samples say about its label.

    Attributes:
        variance: Variance of the neighbors' labels.
        square_distance: Squared distance to the k-th neighbor.
        agreement: Share of the other neighbors that have the sample's class; None unless it was
            asked for and the labels are classes.
        method: How the neighbors were found.
        recall: Share of the true neighbors that were found: 1 if exact, else measured.
        deviation: Distance of the sample's value from the mean of its other neighbors, in their
            standard deviations; None unless it was asked for and the labels are values.
    """

    variance: Tensor
    square_distance: Tensor
    agreement: Tensor | None
    method: str
    recall: float
    deviation: Tensor | None = None


@implements("V4", cites=("novello2020variance",))
def local_variance(
    features: Any,
    labels: Any = None,
    *,
    k: int,
    task: Task = "auto",
    metric: Metric = "euclidean",
    standardize: bool = False,
    method: Method = "auto",
    recall: float = 0.9999,
    memory: int = MEMORY,
    agreement: bool = False,
    progress: bool = False,
) -> LocalVariance:
    r"""Compute the variance of the labels among the k nearest neighbors of every sample.

    Formula: $v_i = \frac{1}{k-1} \sum_{j \in S_k(i)} \left\| y_j - \frac{1}{k} \sum_{l \in S_k(i)}
    y_l \right\|^2$

    Reading: Zero where all neighbors agree, large near a class boundary, on a steep slope or among
    wrong labels. Outputs are summed; classes are one-hot, which makes it the Gini impurity times
    k/(k-1).

    Assumes: Features in which a small distance means similar samples. The sample itself is one of
    its k neighbors.

    **Ties.** Let r be the k-th smallest distance from sample i, I the samples nearer than r, and T
    the samples at r. Only ``k - len(I)`` members of T belong to :math:`S_k(i)`, and none has
    precedence, so v is the mean of the formula over all choices. In closed form, each pair counts
    with the probability that both are chosen. The sample itself and its copies are at distance
    zero, without precedence. The result depends on the set of samples alone, never on their order.
    Distances within eight times their rounding error are equal.

    Args:
        features: Array, tensor or memory map of n rows; or a ``DataLoader``, an iterable of (X, y)
            chunks, or a function that returns one. Chunks are spooled to a temporary file and need
            not fit in memory.
        labels: n classes or values, or n rows of several outputs or binary labels.
        k: Number of neighbors, the sample itself included, from 2 to n.
        task: ``"auto"`` takes one column of whole numbers, booleans or names for classes and all
            else for values.
        metric: ``"euclidean"``, or ``"cosine"``: the distance of normalized rows, where a row of
            zeros has distance one from all others.
        standardize: Divide each feature by its standard deviation.
        method: ``"exact"`` (matrix products), ``"tree"`` (exact, for few dimensions),
            ``"approximate"`` or ``"auto"``.
        recall: Recall that an approximate search must reach on a sample of rows.
        memory: Bytes that a block of distances may take.
        agreement: Also compute which share of its neighbors has a sample's class, or how far its
            value is from theirs.
        progress: Show a progress bar.

    >>> found = local_variance([[0.0], [1.0], [2.0], [9.0]], [0, 0, 1, 1], k=2)
    >>> found.variance.tolist()
    [0.0, 0.5, 1.0, 0.0]
    """
    table, target, on_disk = read(features, labels)
    assert target is not None
    check_k(k, len(table))
    points = as_points(table, target, metric=metric, standardize=standardize, on_disk=on_disk)
    search = Search(points, k, method, memory, recall)
    return gathered(search, target, is_classes(target, task), agreement, progress)


def gathered(
    search: Search, target: Tensor, classes: bool, agreement: bool, progress: bool
) -> LocalVariance:
    """Run a search and compute the local variance of all samples from it.

    Args:
        search: The search, with its points and k.
        target: Labels of all samples.
        classes: Whether the labels are classes.
        agreement: Also compute ``agreement`` or ``deviation``.
        progress: Show a progress bar.
    """
    points, k, owner = search.points, search.k, search.points.table.owner
    labels = Classes(points, target.reshape(-1)) if classes else Values(points, target)
    variance, square = (torch.empty(len(points), dtype=torch.float64) for _ in range(2))
    shares = (
        torch.empty(len(labels.number), dtype=torch.float64)
        if isinstance(labels, Classes) and agreement
        else None
    )
    means = None
    if isinstance(labels, Values) and agreement:
        means = torch.empty(len(points), labels.mean.shape[1], dtype=torch.float64)
    for near in search.blocks(progress=progress):
        variance[near.rows] = labels.moments(near).expected_variance(k)
        square[near.rows] = largest(near.square, rows_of(near.start), len(near.rows))
        if shares is not None and isinstance(labels, Classes):
            atom, share = labels.agreement(near, k)
            shares[atom] = share
        if means is not None and isinstance(labels, Values):
            means[near.rows] = labels.means(near, k)
    agreed = shares[labels.atom] if shares is not None and isinstance(labels, Classes) else None
    deviation = None if means is None else _deviation(target, means[owner], variance[owner], k)
    return LocalVariance(
        variance[owner], square[owner], agreed, search.method, search.recall, deviation
    )


def _deviation(target: Tensor, means: Tensor, variance: Tensor, k: int) -> Tensor:
    """Compute how far each label is from the mean of the other k - 1, in standard deviations.

    ``means`` and ``variance`` include the sample. Removing it in closed form costs no second
    search: the mean of the others is farther away by k/(k-1), and their sum of squares is what
    remains. With k = 2 there is one other label and no spread to compare with, so the deviation is
    0.
    """
    away = (target.double().reshape(len(target), -1) - means).square().sum(1) * (k / (k - 1)) ** 2
    spread = ((k - 1) * (variance - away / k)).clamp_min(0) / max(k - 2, 1)
    rounding = 1e-12 * variance
    ratio = away * (k - 1) / k / torch.where(spread > rounding, spread, 0.0)
    return torch.where(away > rounding, ratio, 0.0).sqrt() * (k > 2)


def is_classes(target: Tensor, task: Task) -> bool:
    """Decide whether labels are classes rather than values.

    Args:
        target: Labels.
        task: The user's choice; ``"auto"`` takes one column of integers or booleans for classes.

    >>> is_classes(torch.tensor([0, 1, 2]), "auto"), is_classes(torch.tensor([0.5, 1.0]), "auto")
    (True, False)
    """
    if task not in TASKS:
        raise InputError(
            f"task must be one of {', '.join(map(repr, TASKS))}, got {task!r}. Choose one."
        )
    single = target.numel() == len(target)
    if task == "classification" and not single:
        raise InputError(
            "Labels of a classification must be one class for each sample, got "
            f"{target.numel() // len(target)} columns. Pass task='multilabel', or class numbers."
        )
    return task == "classification" or (
        task == "auto" and single and not target.is_floating_point()
    )


@implements("V3", cites=("novello2020variance",))
def sampled_variance(
    function: Callable[[Tensor], Tensor],
    inputs: Tensor,
    *,
    epsilon: float,
    samples: int,
    generator: torch.Generator,
    batch_size: int = 4096,
) -> Tensor:
    r"""Estimate how much a function varies around each input, from noisy evaluations.

    Formula: $v(x) = \frac{1}{k-1} \sum_{i=1}^{k} \| f(x + u_i) - f(x) \|^2, \quad u_i \sim N(0,
    \epsilon I)$

    Reading: Large where the function changes quickly. As k grows and ε shrinks, it tends to
    ε‖∇f(x)‖². Outputs are summed.

    Assumes: A function that can be evaluated at any point; no derivative is needed.

    Args:
        function: Takes a batch of inputs and returns one output or row of outputs per input.
        inputs: Where to measure, one row or tensor per input.
        epsilon: Variance ε of the noise.
        samples: Number k of noisy evaluations per input, at least 2.
        generator: Source of the noise.
        batch_size: Inputs per call of the function.

    >>> x = torch.zeros(1, 3, dtype=torch.float64)
    >>> v = sampled_variance(
    ...     lambda z: 2 * z.sum(1), x, epsilon=0.01, samples=20_000, generator=torch.Generator()
    ... )
    >>> bool((v - 0.12).abs() < 0.01)
    True
    """
    if samples < 2 or not epsilon > 0:
        raise InputError(
            f"samples must be at least 2 and epsilon above 0, got {samples!r} and {epsilon!r}. "
            "Raise the one that is too small."
        )
    with torch.no_grad():
        parts = [
            _sampled(function, block, epsilon, samples, generator, batch_size)
            for block in inputs.split(batch_size)
        ]
    return torch.cat(parts)


def _sampled(
    function: Callable[[Tensor], Tensor],
    inputs: Tensor,
    epsilon: float,
    samples: int,
    generator: torch.Generator,
    batch_size: int,
) -> Tensor:
    center, total = _flat(function(inputs)), torch.zeros(len(inputs), dtype=torch.float64)
    draws = max(1, batch_size // len(inputs))
    for first in range(0, samples, draws):
        repeated = inputs.repeat(min(draws, samples - first), *[1] * (inputs.ndim - 1))
        noise = torch.randn(repeated.shape, generator=generator, dtype=inputs.dtype) * epsilon**0.5
        moved = _flat(function(repeated + noise)).unflatten(0, (-1, len(inputs)))
        total += (moved - center).square().sum((0, 2))
    return total / (samples - 1)


def _flat(output: Tensor) -> Tensor:
    return output.detach().double().reshape(len(output), -1)
