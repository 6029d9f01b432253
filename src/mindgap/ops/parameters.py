"""Norms and differences of weights, by layer and in total, in double precision."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, nn


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
