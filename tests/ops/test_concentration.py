"""Bousquet and Elisseeff's inequality: arithmetic, and draws of a problem of known risk."""

import math

import pytest
import torch

from mindgap.core import InputError
from mindgap.ops.concentration import uniform_stability_bound


def test_equals_the_formula() -> None:
    for beta, samples, delta, most in [(0.0, 10, 0.5, 1.0), (0.2, 500, 0.05, 3.0)]:
        wanted = (
            0.1
            + 2 * beta
            + (4 * samples * beta + most) * math.sqrt(math.log(1 / delta) / (2 * samples))
        )
        assert uniform_stability_bound(0.1, beta, samples, delta, most) == pytest.approx(wanted)


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


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0])
def test_refuses_an_impossible_delta(delta: float) -> None:
    with pytest.raises(InputError, match="delta"):
        uniform_stability_bound(0.1, 0.1, 10, delta, 1.0)
