"""Neighbors and local variance as written down: all pairs, double precision, no blocks."""

from __future__ import annotations

import itertools

import numpy as np

TIE = 1e-12


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
