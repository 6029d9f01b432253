"""What tests of ops share: brute-force neighbors and variances, features with pitfalls, posteriors."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import torch
from torch import nn

from mindgap.data import digits
from mindgap.ops.pac_bayes.posterior import StochasticModel, stochastic_model

TIE = 1e-12
N = 1000
DELTAS = (1e-9, 1e-3, 0.05, 0.3, 0.9)
KINDS = ("gaussian", "uniform")


def squares(features, scale=None):
    rows = np.asarray(features, dtype=np.float64)
    scale = np.ones(rows.shape[1]) if scale is None else scale
    total = np.zeros((len(rows), len(rows)))
    for column, factor in zip(rows.T, scale, strict=True):
        total += np.square((column[:, None] - column) * factor)
    return total


def groups(square, k):
    """For each row the samples nearer than the k-th distance, and those at it."""
    for line in square:
        kth = np.sort(line)[k - 1]
        yield (
            np.flatnonzero(line < kth * (1 - TIE)),
            np.flatnonzero(np.abs(line - kth) <= kth * TIE),
        )


def one_hot(labels):
    return (np.asarray(labels)[:, None] == np.unique(labels)).astype(float)


def variances(square, outputs, k):
    outputs = np.asarray(outputs, dtype=np.float64).reshape(len(square), -1)
    return np.array([_expected(outputs, inner, tied, k) for inner, tied in groups(square, k)])


def enumerated(square, outputs, k):
    """The mean over every choice of tied samples, one by one."""
    outputs = np.asarray(outputs, dtype=np.float64).reshape(len(square), -1)
    means = []
    for inner, tied in groups(square, k):
        chosen = itertools.combinations(tied, k - len(inner))
        means.append(np.mean([outputs[[*inner, *some]].var(0, ddof=1).sum() for some in chosen]))
    return np.array(means)


def _expected(outputs, inner, tied, k):
    if len(inner) + len(tied) == k:
        return outputs[[*inner, *tied]].var(0, ddof=1).sum()
    m, t = k - len(inner), len(tied)
    both = m * (m - 1) / (t * (t - 1)) if t > 1 else 0.0
    total = _pairs(outputs, inner, inner) / 2 + m / t * _pairs(outputs, inner, tied)
    return (total + both * _pairs(outputs, tied, tied) / 2) / (k * (k - 1))


def _pairs(outputs, left, right):
    return np.square(outputs[left][:, None] - outputs[right][None]).sum()


@functools.cache
def features() -> torch.Tensor:
    """Digits through a random layer: neither a lattice nor centered."""
    images = digits().train[0].reshape(-1, 64)[:N]
    mixing = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    return torch.relu(images @ mixing / 8).float()


def clusters(rows: torch.Tensor, size: float) -> torch.Tensor:
    return rows + size * torch.where(torch.arange(len(rows)) % 2 == 0, 1.0, -1.0)[:, None]


def one_scaled(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows[:, :1] * 1e4, rows[:, 1:]], dim=1)


def outlier(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows[:-1], rows[-1:] + 1e6])


TRIALS = {
    "plain": lambda rows: rows,
    "offset": lambda rows: rows + 1e4,
    "clusters": lambda rows: clusters(rows, 1e4),
    "one feature scaled": one_scaled,
    "outlier": outlier,
    "huge outlier": lambda rows: torch.cat([rows[:-1].double(), rows[-1:].double() * 1e60]),
    "far beyond double precision": lambda rows: clusters(rows.double(), 1e11),
    "tiny": lambda rows: rows * 1e-25,
    "rounded": lambda rows: rows.round(),
    "coarse": lambda rows: rows[:, :3].round(),
    "copies": lambda rows: rows[torch.arange(len(rows)) % 37],
}


def sets(square: np.ndarray, k: int) -> list[set[int]]:
    return [set(inner) | set(tied) for inner, tied in groups(square, k)]


@functools.cache
def labels(n: int = 1000) -> torch.Tensor:
    return digits().train[1][:n]


def on_grid(kl: float, samples: int, delta: float, divisor: int) -> float:
    """All members of Appendix D's grid up to 40, one by one."""
    values = []
    for index in range(40):
        share = -math.log(delta) + (index + 1) * math.log(2)
        eta = math.exp(index) * math.sqrt(divisor * samples * share)
        values.append((kl + share) / eta + eta / (divisor * samples))
    return min(values)


def moved(model: nn.Module, kind: str, scale: float, seed: int = 0) -> StochasticModel:
    """A stochastic classifier that has left its prior."""
    found, source = stochastic_model(model, kind, scale), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        found.shift += torch.randn(found.shift.shape, generator=source)
        found.spread += 0.5 * torch.rand(found.spread.shape, generator=source)
    return found
