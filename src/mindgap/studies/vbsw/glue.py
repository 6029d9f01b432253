"""RTE, STS-B and MRPC of GLUE: metrics, the parts of a split, and variance-based weights."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mindgap.core import spearman
from mindgap.data import standardize, stratified_split
from mindgap.ops.variance.by_k import VarianceByK
from mindgap.ops.variance.weights import scale_weights

METRICS = {"RTE": ("accuracy",), "STS-B": ("Spearman", "Pearson"), "MRPC": ("accuracy", "F1")}
SETTINGS = tuple((m, k) for k in (5, 10, 20, 40) for m in (2.0, 5.0, 10.0, 40.0))  # to choose from
PUBLISHED = {"RTE": (20.0, 10, 8), "STS-B": (30.0, 30, 8), "MRPC": (75.0, 25, 16)}  # m, k, batch
SHARES = (0.6, 0.2, 0.2)  # of the samples, to fit, to choose and to judge


def scores(name: str, outputs: Tensor, target: Tensor) -> dict[str, list[float]]:
    """Return the GLUE metrics of many models, in percent; an undefined metric counts as zero.

    Args:
        name: The data set.
        outputs: Logits of class 1, or predicted values, ``(models, samples)``.
        target: Classes or values.
    """
    if name == "STS-B":
        found = {
            "Spearman": rank_correlation(outputs, target),
            "Pearson": correlation(outputs, target),
        }
    elif name == "MRPC":
        found = {"accuracy": accuracy(outputs, target), "F1": f1(outputs, target)}
    else:
        found = {"accuracy": accuracy(outputs, target)}
    return {metric: (100 * values.nan_to_num(0.0)).tolist() for metric, values in found.items()}


def accuracy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the share of correct predictions.

    Args:
        logits: Logits of class 1, ``(models, samples)``.
        target: The classes.

    >>> accuracy(torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([1, 1, 1])).tolist()
    [0.6666666666666666]
    """
    return ((logits > 0) == (target == 1)).double().mean(1)


def f1(logits: Tensor, target: Tensor) -> Tensor:
    """Return the harmonic mean of precision and recall of class 1.

    Args:
        logits: Logits of class 1, ``(models, samples)``.
        target: The classes.

    >>> f1(torch.tensor([[1.0, 1.0, -1.0, -1.0]]), torch.tensor([1, 0, 1, 0])).tolist()
    [0.5]
    """
    predicted, true = logits > 0, target == 1
    return 2 * (predicted & true).sum(1) / (predicted.sum(1) + true.sum()).double()


def correlation(values: Tensor, target: Tensor) -> Tensor:
    """Return Pearson's correlation of each model with the target.

    Args:
        values: Predicted values, ``(models, samples)``.
        target: True values.

    >>> correlation(
    ...     torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), torch.tensor([0.0, 2.0, 4.0])
    ... ).round(decimals=9).tolist()
    [1.0, -1.0]
    """
    left, right = (
        table.double() - table.double().mean(-1, keepdim=True) for table in (values, target)
    )
    found: Tensor = (left @ right) / (left.norm(dim=1) * right.norm())
    return found


def rank_correlation(values: Tensor, target: Tensor) -> Tensor:
    """Return Spearman's correlation of each model with the target."""
    return torch.tensor(
        [spearman(row, target.numpy()) for row in values.numpy()], dtype=torch.float64
    )


@dataclasses.dataclass(frozen=True)
class Parts:
    """Features and targets of one split.

    Args:
        name: The data set.
        kind: The loss of the exact solver.
        fit: To train on.
        choose: To choose settings on.
        judge: To judge on, once.
    """

    name: str
    kind: Any
    fit: tuple[Tensor, Tensor]
    choose: tuple[Tensor, Tensor]
    judge: tuple[Tensor, Tensor]

    @classmethod
    def of(
        cls, name: str, features: Tensor, target: Tensor, rows: Sequence[Tensor], components: int
    ) -> "Parts":
        """Standardize features and project them on principal components learned on the fit part.

        Args:
            name: The data set.
            features: All features.
            target: All targets; floating-point values mean a regression.
            rows: Row numbers of the fit, choose and judge parts.
            components: Principal components to keep.
        """
        fit, *others = standardize(*(features[part] for part in rows))
        directions = torch.linalg.eigh(fit.T @ fit).eigenvectors[:, -components:]
        turned = [
            (part @ directions, target[places])
            for part, places in zip((fit, *others), rows, strict=True)
        ]
        return cls(name, "squares" if target.is_floating_point() else "logistic", *turned)


class Weights:
    """Variance-based weights of the published setting and of the grid, from the fit part alone.

    Args:
        parts: The split.
    """

    def __init__(self, parts: Parts) -> None:
        task: Any = "regression" if parts.kind == "squares" else "classification"
        by_k = VarianceByK(*parts.fit, max(k for _, k in SETTINGS), task=task)
        self.grid = torch.stack([scale_weights(by_k(k), m) for m, k in SETTINGS])
        m, k, _ = PUBLISHED[parts.name]
        self.published = scale_weights(by_k(k), m)


def rows_of(target: Tensor, official: Tensor | None, seed: int) -> tuple[Tensor, ...]:
    """Return the row numbers of the fit, choose and judge parts.

    Args:
        target: All targets.
        official: Which rows are the judge part; None draws it too. The other parts share the rest.
        seed: For the draw.
    """
    if official is None:
        return stratified_split(target, SHARES, seed)
    rest = torch.nonzero(~official)[:, 0]
    shares = (SHARES[0] / sum(SHARES[:2]), SHARES[1] / sum(SHARES[:2]))
    fit, choose = (rest[part] for part in stratified_split(target[rest], shares, seed))
    return fit, choose, torch.nonzero(official)[:, 0]
