"""Lemma 4 against plain arithmetic, before and after its corrections."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from scipy import special, stats

from mindgap.core.errors import InputError
from mindgap.ops.pac_bayes.truncated import lemma4, truncation_point


class TestLemma4:
    SETTINGS: ClassVar = {
        "prior_variance": 4.0,
        "lipschitz": 0.7,
        "eta": 60.0,
        "samples": 900,
        "delta": 0.05,
    }

    @pytest.mark.parametrize("count", [1, 10, 1000, 100_000])
    def test_the_event_has_half_of_the_mass_only_with_the_corrected_radius(
        self, count: int
    ) -> None:
        right, printed = (truncation_point(count, as_published=slip) for slip in (False, True))
        assert special.erf(right / math.sqrt(2)) ** count >= 0.5
        assert special.erf(printed / math.sqrt(2)) ** count <= 0.5
        if count >= 10:
            assert special.erf(printed / math.sqrt(2)) ** count < 1e-12

    def test_the_event_by_sampling(self) -> None:
        noise = np.abs(np.random.default_rng(0).normal(size=(20_000, 50)))
        assert (noise < truncation_point(50)).all(1).mean() > 0.5
        assert not (noise < truncation_point(50, as_published=True)).all(1).any()

    def test_value_before_and_after_correction(self) -> None:
        weights, diagonal, reach = np.array([0.5, -1.0]), np.array([2.0, 0.1]), np.array([0.9, 0.3])
        found = lemma4(0.1, weights, diagonal, reach, **self.SETTINGS)
        third = 0.7 * math.sqrt(2) * reach
        cap = reach / stats.norm.ppf(1 - 1 / 8)  # two-sided tail 1/4 = 1/2m
        scales = np.minimum((60 * diagonal + 60 * third / 3 + 1 / 4) ** -0.5, cap)
        assert found.scales.numpy() == pytest.approx(scales, rel=1e-12)
        whole = 0.5 * (2 * math.log(4) - np.log(scales**2).sum() - 2 + (scales**2).sum() / 4 + 1)
        rise, fixed = ((diagonal / 2 + third / 6) * scales**2).sum(), math.log(20) / 60 + 60 / 1800
        assert found.bound == pytest.approx(0.1 + rise + 2 * (whole + 1) / 60 + fixed, rel=1e-12)
        assert found.tight < found.bound
        printed = lemma4(0.1, weights, diagonal, reach, **self.SETTINGS, as_published=True)
        wide = np.minimum(
            (60 * diagonal + third / 3 + 1 / 4) ** -0.5,
            reach / (math.sqrt(2) * special.erfinv(1 / 4)),
        )
        assert printed.scales.numpy() == pytest.approx(wide, rel=1e-12)
        expected = (
            0.1 + (2 * math.log(4) - np.log(wide**2).sum() + 1 + 2 * math.log(20)) / 120 + 60 / 1800
        )
        assert printed.bound == pytest.approx(expected, rel=1e-12)

    def test_weights_must_fit_the_prior(self) -> None:
        with pytest.raises(InputError, match="sum of the squared weights"):
            lemma4(0.1, [3.0], [1.0], [0.1], **self.SETTINGS)
