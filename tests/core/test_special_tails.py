"""Tails of distributions against scipy, into the far tail where corrected p-values are decided."""

from __future__ import annotations

import pytest
import scipy.stats

from mindgap.core.special import (
    binomial_upper_tail,
    chi_square_tail,
    hypergeometric_tail,
    normal_tail,
)


@pytest.mark.parametrize("z", [-2.0, 0.0, 3.0, 8.0, 30.0])
def test_normal(z: float) -> None:
    assert normal_tail(z) == pytest.approx(scipy.stats.norm.sf(z), rel=1e-12)


@pytest.mark.parametrize(("x", "degrees"), [(0.0, 3), (1.0, 1), (50.0, 9), (400.0, 9), (9e3, 99)])
def test_chi_square(x: float, degrees: int) -> None:
    expected = scipy.stats.chi2.sf(x, degrees)
    assert chi_square_tail(x, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    ("hits", "drawn", "marked", "total"),
    [(0, 5, 3, 10), (3, 5, 3, 10), (60, 100, 2000, 6000), (100, 100, 2000, 6000), (5, 4, 9, 20)],
)
def test_hypergeometric(hits: int, drawn: int, marked: int, total: int) -> None:
    expected = scipy.stats.hypergeom.sf(hits - 1, total, marked, drawn)
    assert hypergeometric_tail(hits, drawn, marked, total) == pytest.approx(
        expected, rel=1e-8, abs=1e-300
    )


@pytest.mark.parametrize(
    ("hits", "trials", "rate"), [(0, 5, 0.1), (5, 5, 0.1), (40, 1000, 0.01), (6, 5, 0.5)]
)
def test_binomial(hits: int, trials: int, rate: float) -> None:
    expected = scipy.stats.binom.sf(hits - 1, trials, rate)
    assert binomial_upper_tail(hits, trials, rate) == pytest.approx(expected, rel=1e-9)
