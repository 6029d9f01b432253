"""Rademacher complexity of linear and kernel classes against all sign vectors."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from mindgap.core import InputError
from mindgap.ops import rademacher
from mindgap.ops.rademacher import (
    kernel_complexity,
    linear_complexity,
    sampled_kernel_complexity,
    sampled_linear_complexity,
)


def exact(features: torch.Tensor, norm: float) -> float:
    """The mean over all 2ⁿ sign vectors of the supremum, which Cauchy and Schwarz give."""
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=len(features)))).double()
    return float((signs @ features).norm(dim=1).mean()) * norm / len(features)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.floats(0, 10), st.integers(0, 1000))
def test_closed_form_is_above_and_within_the_root_of_two(
    samples: int, width: int, norm: float, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    features = torch.randn(samples, width, generator=random, dtype=torch.float64)
    truth, found = exact(features, norm), linear_complexity(features, norm)
    assert truth <= found * (1 + 1e-12)
    assert found <= math.sqrt(2) * truth * (1 + 1e-12)
    assert kernel_complexity(features @ features.T, norm) == pytest.approx(found)


@pytest.mark.parametrize("signs", [rademacher.SIGNS, 60_000])
def test_draws_converge_to_all_signs(signs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rademacher, "SIGNS", signs)  # in one block, or three samples at a time
    random = torch.Generator().manual_seed(0)
    features = torch.randn(8, 3, generator=random, dtype=torch.float64)
    truth = exact(features, 2.0)
    for found, error in (
        sampled_linear_complexity(features, 2.0, draws=20_000),
        sampled_kernel_complexity(features @ features.T, 2.0, draws=20_000),
    ):
        assert abs(found - truth) < 4 * error
        assert error < 0.01 * truth


def test_refuses_a_matrix_that_is_no_kernel() -> None:
    with pytest.raises(InputError, match="symmetric"):
        kernel_complexity(torch.ones(2, 3))
