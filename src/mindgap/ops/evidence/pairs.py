"""Tests of pairs: the same samples under two variants of a model."""

import math

from torch import Tensor


def sign_flip_tail(differences: Tensor) -> float:
    r"""Bound the p-value of the sign-flip test of a positive mean, however heavy the tails are.

    If neither variant is better, a difference is as likely negative as positive. Given the sizes,
    Hoeffding's inequality then bounds the tail of the sum by $\exp(-S^2 / 2 \sum_i d_i^2)$. A
    normal tail would be too small where a few samples carry the sum.

    Args:
        differences: One number per sample.

    >>> import torch
    >>> round(sign_flip_tail(torch.ones(8)), 4), sign_flip_tail(torch.tensor([1.0, -2.0]))
    (0.0183, 1.0)
    """
    values = differences.detach().double()
    total, squares = float(values.sum()), float(values.square().sum())
    return math.exp(-total * total / (2 * squares)) if total > 0 else 1.0
