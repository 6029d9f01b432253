"""Traps of validity: each makes false certificates without its guard, and none with it."""

from __future__ import annotations

import functools
import math

import numpy as np

from mindgap.ops.pac_bayes.bounds import monte_carlo
from mindgap.training.certify.job import needed_draws


class TestStopping:
    """How many draws judge the weights may not depend on what they show."""

    RISK, DELTA, RUNS = 0.05, 0.05, 2000

    def test_draws_that_stop_when_they_look_good_fail_too_often(self) -> None:
        source, steps = np.random.default_rng(0), np.arange(1, 10_001)
        failed = []
        for _ in range(10):
            wrong = (source.random((self.RUNS // 10, len(steps))) < self.RISK).cumsum(1)
            mean = np.clip(wrong, 0.5, steps - 0.5) / steps
            excess = mean * np.log(mean / self.RISK) + (1 - mean) * np.log(
                (1 - mean) / (1 - self.RISK)
            )
            below = (mean < self.RISK) & (steps * excess > math.log(1 / self.DELTA))
            failed += below[:, 50:].any(1).tolist()
        assert np.mean(failed) > 2 * self.DELTA

    def test_a_number_from_a_pilot_that_is_thrown_away_does_not(self) -> None:
        source, failed = np.random.default_rng(1), 0
        needed = functools.cache(
            lambda wrong: needed_draws((wrong + 1) / 101, lambda limit: limit, self.DELTA, 20_000)
        )
        for _ in range(self.RUNS):
            draws = needed(source.binomial(100, self.RISK))
            mean = source.binomial(draws, self.RISK) / draws
            failed += monte_carlo(mean, draws, self.DELTA) < self.RISK
        assert failed <= self.DELTA * self.RUNS
