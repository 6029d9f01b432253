"""Brute force for measures of norms: every layer as an explicit matrix, in NumPy."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import nn

from mindgap.core.subject import Subject

Layers = list[tuple[np.ndarray, np.ndarray]]  # matrix and bias of every layer


def layers(subject: Subject, initial: bool = False) -> Layers:
    """Dense layers as they are; the convolution of the cases on 6×6 images, normalized."""
    model = copy.deepcopy(subject.model).double().eval()
    if initial:
        model.load_state_dict(subject.initial)
    found: Layers = []
    with torch.no_grad():
        if hasattr(model, "body"):
            block, zero = model.body[:2], torch.zeros(1, 1, 6, 6, dtype=torch.double)
            units = torch.eye(36, dtype=torch.double).view(36, 1, 6, 6)
            bias = block(zero).flatten()
            found.append(((block(units).flatten(1) - bias).T.numpy(), bias.numpy()))
        for module in model.modules():
            if isinstance(module, nn.Linear):
                found.append((module.weight.numpy(), module.bias.numpy()))
    return found


def spectral(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False)[0])


def frobenius(matrix: np.ndarray) -> float:
    return math.sqrt(sum(float(value) ** 2 for value in matrix.ravel()))


def product(subject: Subject, norm: object) -> float:
    squares = [norm(matrix) ** 2 for matrix, _ in layers(subject)]
    return 0.5 * math.log(math.prod(squares) / len(subject.train))


def balanced_sum(subject: Subject, norm: object) -> float:
    """Rescale the layers until their norms are equal, and add up the squares."""
    matrices = [matrix for matrix, _ in layers(subject)]
    size = math.prod(norm(matrix) for matrix in matrices) ** (1 / len(matrices))
    even = [matrix * size / norm(matrix) for matrix in matrices]
    return 0.5 * math.log(sum(norm(matrix) ** 2 for matrix in even) / len(subject.train))


def stable_ranks(subject: Subject) -> float:
    ranks = [(frobenius(matrix) / spectral(matrix)) ** 2 for matrix, _ in layers(subject)]
    return 0.5 * math.log(sum(ranks) / len(subject.train))


def spectral_distance(subject: Subject) -> float:
    pairs = zip(layers(subject), layers(subject, initial=True), strict=True)
    total = sum(spectral(now - then) ** 2 for (now, _), (then, _) in pairs)
    return 0.5 * math.log(total / len(subject.train))


def spectral_complexity(subject: Subject) -> float:
    matrices = [matrix for matrix, _ in layers(subject)]
    rows = [sum(math.sqrt(sum(row**2)) for row in matrix) for matrix in matrices]
    parts = [(r / spectral(matrix)) ** (2 / 3) for r, matrix in zip(rows, matrices, strict=True)]
    return math.log(math.prod(spectral(matrix) for matrix in matrices) * sum(parts) ** 1.5)


def path_norm(subject: Subject) -> float:
    """Follow all paths at once, as squares."""
    sums = None
    for matrix, bias in layers(subject):
        if sums is None:
            sums = np.ones(matrix.shape[1])
        elif sums.size != matrix.shape[1]:  # the max-pool of the convolution lies between
            sums = sums.reshape(4, 3, 2, 3, 2).sum(axis=(2, 4)).ravel()
        sums = (matrix**2) @ sums + bias**2
    return 0.5 * math.log(sums.sum() / len(subject.train))


def normalized_margin(subject: Subject, margin: float) -> float:
    inputs = subject.train.take(torch.arange(len(subject.train))).inputs
    tensors = inputs.values() if isinstance(inputs, dict) else inputs
    size = math.sqrt(sum(float((value.double() ** 2).sum()) for value in tensors))
    return margin * len(subject.train) / (math.exp(spectral_complexity(subject)) * size)
