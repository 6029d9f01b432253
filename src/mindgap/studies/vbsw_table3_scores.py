"""The metrics of GLUE for RTE, STS-B and MRPC, for many models at once."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.core.stats import spearman


def scores(name: str, outputs: Tensor, target: Tensor) -> dict[str, list[float]]:
    """Metrics in percent of outputs (models, samples): logits of class 1, or values; what is undefined counts zero."""
    if name == "STS-B":
        found = {"Spearman": rank_correlation(outputs, target), "Pearson": correlation(outputs, target)}
    elif name == "MRPC":
        found = {"accuracy": accuracy(outputs, target), "F1": f1(outputs, target)}
    else:
        found = {"accuracy": accuracy(outputs, target)}
    return {metric: (100 * values.nan_to_num(0.0)).tolist() for metric, values in found.items()}


def accuracy(logits: Tensor, target: Tensor) -> Tensor:
    """Share of right answers.

    >>> accuracy(torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([1, 1, 1])).tolist()
    [0.6666666666666666]
    """
    return ((logits > 0) == (target == 1)).double().mean(1)


def f1(logits: Tensor, target: Tensor) -> Tensor:
    """Harmonic mean of precision and recall of class 1.

    >>> f1(torch.tensor([[1.0, 1.0, -1.0, -1.0]]), torch.tensor([1, 0, 1, 0])).tolist()
    [0.5]
    """
    said, true = logits > 0, target == 1
    return 2 * (said & true).sum(1) / (said.sum(1) + true.sum()).double()


def correlation(values: Tensor, target: Tensor) -> Tensor:
    """Pearson's correlation.

    >>> correlation(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), torch.tensor([0.0, 2.0, 4.0])).round(
    ...     decimals=9
    ... ).tolist()
    [1.0, -1.0]
    """
    left, right = (table.double() - table.double().mean(-1, keepdim=True) for table in (values, target))
    found: Tensor = (left @ right) / (left.norm(dim=1) * right.norm())
    return found


def rank_correlation(values: Tensor, target: Tensor) -> Tensor:
    """Spearman's correlation."""
    return torch.tensor([spearman(row, target.numpy()) for row in values.numpy()], dtype=torch.float64)
