"""The parts of a split of RTE, STS-B or MRPC, and the weights of its fit part."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mindgap.data import standardize, stratified_split
from mindgap.ops.variance_by_k import VarianceByK
from mindgap.ops.weights import scale_weights

SETTINGS = tuple((m, k) for k in (5, 10, 20, 40) for m in (2.0, 5.0, 10.0, 40.0))  # to choose from
PARTS = (0.6, 0.2, 0.2)  # fit, choose, judge
PUBLISHED = {"RTE": (20.0, 10, 8), "STS-B": (30.0, 30, 8), "MRPC": (75.0, 25, 16)}  # m, k, batch size in Table 6


@dataclasses.dataclass(frozen=True)
class Parts:
    """Features and targets to fit, to choose and to judge."""

    name: str
    kind: Any
    fit: tuple[Tensor, Tensor]
    choose: tuple[Tensor, Tensor]
    judge: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, name: str, features: Tensor, target: Tensor, rows: Sequence[Tensor], components: int) -> Parts:
        """Standardised features, turned to the first principal components; both are learned on the fit part."""
        fit, *others = standardize(*(features[part] for part in rows))
        directions = torch.linalg.eigh(fit.T @ fit).eigenvectors[:, -components:]
        turned = [(part @ directions, target[places]) for part, places in zip((fit, *others), rows, strict=True)]
        return cls(name, "squares" if target.is_floating_point() else "logistic", *turned)


class Weights:
    """Weights of the published setting and of every setting to choose from, from the fit part alone."""

    def __init__(self, parts: Parts) -> None:
        task: Any = "regression" if parts.kind == "squares" else "classification"
        by_k = VarianceByK(*parts.fit, max(k for _, k in SETTINGS), task=task)
        self.grid = torch.stack([scale_weights(by_k(k), m) for m, k in SETTINGS])
        m, k, _ = PUBLISHED[parts.name]
        self.published = scale_weights(by_k(k), m)


def rows_of(target: Tensor, official: Tensor | None, seed: int) -> tuple[Tensor, ...]:
    """Rows to fit, to choose and to judge; where the official part judges, the others share the rest in their ratio."""
    if official is None:
        return stratified_split(target, PARTS, seed)
    rest, shares = torch.nonzero(~official)[:, 0], (PARTS[0] / sum(PARTS[:2]), PARTS[1] / sum(PARTS[:2]))
    fit, choose = (rest[part] for part in stratified_split(target[rest], shares, seed))
    return fit, choose, torch.nonzero(official)[:, 0]
