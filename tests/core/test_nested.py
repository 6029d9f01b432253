"""Paired tests over splits and over seeds."""

import numpy as np
import pytest
import scipy.stats

from mindgap.core.errors import InputError
from mindgap.core.stats import paired_nested


def _table(
    split_noise: float, seed_noise: float, effect: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    control = random.normal(size=(6, 5))
    change = (
        effect + split_noise * random.normal(size=(6, 1)) + seed_noise * random.normal(size=(6, 5))
    )
    return control + change, control


def test_over_splits_is_the_test_of_split_means() -> None:
    treated, control = _table(1.0, 0.5, 0.3, 0)
    expected = scipy.stats.ttest_rel(treated.mean(1), control.mean(1))
    assert paired_nested(treated, control).over_splits.p_value == pytest.approx(
        expected.pvalue, rel=1e-9
    )


def test_over_seeds_equals_least_squares_with_a_mean_for_every_split() -> None:
    treated, control = _table(1.0, 0.5, 0.3, 1)
    change = treated - control
    design = np.kron(np.eye(6), np.ones((5, 1)))
    coefficients, residual, *_ = np.linalg.lstsq(design, change.ravel(), rcond=None)
    contrast = np.full(6, 1 / 6)
    error = np.sqrt(
        float(residual[0]) / 24 * contrast @ np.linalg.inv(design.T @ design) @ contrast
    )
    found = paired_nested(treated, control)
    assert found.difference == pytest.approx(float(contrast @ coefficients))
    half = scipy.stats.t.ppf(0.975, 24) * error
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (found.difference - half, found.difference + half)
    )
    assert found.p_value == pytest.approx(
        2 * scipy.stats.t.sf(abs(found.difference) / error, 24), rel=1e-9
    )


def test_only_the_test_over_splits_keeps_its_level_when_splits_differ() -> None:
    found = [paired_nested(*_table(1.0, 0.1, 0.0, seed)) for seed in range(400)]
    assert np.mean([one.over_splits.p_value < 0.05 for one in found]) < 0.08
    assert np.mean([one.p_value < 0.05 for one in found]) > 0.5


def test_equal_arms_give_no_difference() -> None:
    found = paired_nested(np.ones((3, 2)), np.ones((3, 2)))
    assert (found.difference, found.p_value) == (0.0, 1.0)


@pytest.mark.parametrize("shape", [(3,), (1, 4), (4, 1)], ids=["flat", "one split", "one seed"])
def test_says_what_is_missing(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="at least two splits and two seeds"):
        paired_nested(np.ones(shape), np.ones(shape))
