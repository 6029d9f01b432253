"""The bound of the sign-flip test, against all flips."""

from __future__ import annotations

import itertools

import torch

from mindgap.ops.evidence.permutation import sign_flip_tail


def test_is_never_below_the_exact_p_value() -> None:
    for seed in range(20):
        random = torch.Generator().manual_seed(seed)
        differences = torch.randn(10, generator=random).double() ** 3 + 0.3
        flips = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=10))).double()
        exact = float((flips @ differences.abs() >= differences.sum() - 1e-12).double().mean())
        assert sign_flip_tail(differences) >= exact


def test_ends() -> None:
    assert sign_flip_tail(torch.zeros(5)) == 1.0
    assert sign_flip_tail(-torch.ones(5)) == 1.0
    assert sign_flip_tail(torch.ones(2000)) < 1e-300
