"""Inequalities against plain arithmetic and simulated sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import optimize

from mindgap.core import InputError
from mindgap.ops.concentration import (
    adaptive_guarantee,
    bernstein,
    matrix_bernstein,
    robustness_bound,
    uniform_stability_bound,
)


def test_the_example_of_the_slides() -> None:
    assert bernstein(10_000, 0.1 / 1e9, exact=False) == pytest.approx(0.0693964610, abs=5e-11)
    assert bernstein(10_000, 0.1 / 1e9) == pytest.approx(0.0686, abs=5e-5)
    assert bernstein(10_000, 0.1 / 1e9, variance=0.25, exact=False) == pytest.approx(
        0.0355, abs=5e-5
    )


@given(
    samples=st.integers(1, 10**6),
    delta=st.floats(1e-12, 0.99),
    magnitude=st.floats(0.01, 100),
    variance=st.floats(0, 100),
)
def test_exact_inversion_solves_bernsteins_inequality(
    samples: int, delta: float, magnitude: float, variance: float
) -> None:
    found = bernstein(samples, delta, magnitude=magnitude, variance=variance)
    tail = -samples * found**2 / (2 * (variance + magnitude * found / 3))
    assert tail == pytest.approx(math.log(delta), rel=1e-9)
    assert found <= bernstein(
        samples, delta, magnitude=magnitude, variance=variance, exact=False
    ) * (1 + 1e-12)


def test_matrix_bernstein_solves_its_inequality() -> None:
    tail = lambda t: 50 * math.exp(-(t**2) / 2 / (3.0 + 0.7 * t / 3)) - 0.05  # noqa: E731
    wanted = optimize.brentq(tail, 0.1, 100)
    assert matrix_bernstein(50, 0.05, magnitude=0.7, variance=3.0) == pytest.approx(
        wanted, rel=1e-9
    )


def test_matrix_bernstein_holds_for_random_signs() -> None:
    random = np.random.default_rng(0)
    parts = random.standard_normal((40, 5, 5))
    parts = (parts + parts.transpose(0, 2, 1)) / 2
    magnitude = max(np.abs(np.linalg.eigvalsh(part)).max() for part in parts)
    variance = np.linalg.eigvalsh(sum(part @ part for part in parts)).max()
    limit = matrix_bernstein(5, 0.1, magnitude=magnitude, variance=variance)
    signs = random.choice([-1.0, 1.0], (2000, 40))
    largest = np.linalg.eigvalsh(np.einsum("dk,kij->dij", signs, parts))[:, -1]
    assert (largest >= limit).mean() <= 0.1
    assert largest.max() > limit / 3  # and it is not empty


def test_bounds_of_algorithms() -> None:
    stable = uniform_stability_bound(0.1, 0.001, 500, 0.05, 1.0)
    assert stable == pytest.approx(0.1 + 0.002 + 3 * math.sqrt(math.log(20) / 1000))
    robust = robustness_bound(0.1, 0.2, 8, 500, 0.05, 2.0)
    assert robust == pytest.approx(0.3 + 2 * math.sqrt((16 * math.log(2) + 2 * math.log(20)) / 500))


def test_adaptive_guarantee_counts_what_could_be_reached() -> None:
    """With two models per step, three steps reach one, two and four: seven in all, below 2³."""
    from mindgap.core import kl_inverse

    assert adaptive_guarantee(0.1, 1000, 3, 0.05) == kl_inverse(0.1, math.log(8 / 0.05) / 1000)
    assert adaptive_guarantee(0.1, 1000, 1, 0.05, bits=0) == kl_inverse(0.1, math.log(20) / 1000)
    assert adaptive_guarantee(0.1, 100, 10_000, 0.05) > 0.99


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1])
def test_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(InputError, match="delta must be"):
        bernstein(10, delta)
    with pytest.raises(InputError, match="delta must be"):
        robustness_bound(0.1, 0.1, 2, 10, delta, 1.0)


def test_holds_for_a_mean_whose_stability_is_known() -> None:
    """Squared loss of the mean of values in [0, 1]: a removal moves it by 1/(n − 1) at most."""
    n, delta = 2000, 0.1
    values = torch.rand(500, n, generator=torch.Generator().manual_seed(0)).double()
    means = values.mean(1)
    risk = 1 / 12 + (means - 0.5) ** 2
    empirical = ((values - means[:, None]) ** 2).mean(1)
    beta = 2 / (n - 1)  # |a² − b²| ≤ 2 |a − b| for a, b in [0, 1]
    bounds = [uniform_stability_bound(float(one), beta, n, delta, 1.0) for one in empirical]
    assert (risk <= torch.tensor(bounds).double()).double().mean() >= 1 - delta
