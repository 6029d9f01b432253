"""Lemmas 3 and 5 and Theorem 2 against plain arithmetic and numerical minimization."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from ops.helpers import DELTAS, on_grid
from scipy import optimize

from mindgap.core.errors import InputError
from mindgap.ops.pac_bayes.bounds import uniform_kl
from mindgap.ops.pac_bayes.hessian import lemma3, lemma5, theorem2, uniform_scales

DIVERGENCES = (0.0, *np.geomspace(1e-4, 1e8, 120))


def right_side(kl: float, delta: float, index: int) -> float:
    """The number that Appendix D rounds down to the index of the grid."""
    return 0.5 * math.log(kl / (math.log(1 / delta) + (index + 1) * math.log(2)) + 1)


class TestTheorem2:
    @pytest.mark.parametrize("delta", DELTAS)
    def test_constant_of_the_proof_is_above_the_printed_grid(self, delta: float) -> None:
        for kl in DIVERGENCES:
            closed = theorem2(0.0, kl, 1, 1000, delta, by_its_proof=True) - 0.5 * math.sqrt(
                1 / 1000
            )
            assert closed >= on_grid(kl, 1000, delta, 2)

    @pytest.mark.parametrize("delta", DELTAS)
    def test_printed_constant_is_below_the_printed_grid_but_above_the_sharp_one(
        self, delta: float
    ) -> None:
        for kl in DIVERGENCES:
            closed = theorem2(0.0, kl, 1, 1000, delta) - 0.5 * math.sqrt(1 / 1000)
            assert on_grid(kl, 1000, delta, 8) <= closed < on_grid(kl, 1000, delta, 2)

    def test_the_equation_for_the_index_may_have_no_solution(self) -> None:
        """Appendix D defines j = ⌊½ ln(KL/ln(1/δ_j) + 1)⌋, so the bound is the grid's minimum instead."""
        solutions = [
            [j for j in range(20) if j == math.floor(right_side(kl, 0.05, j))] for kl in DIVERGENCES
        ]
        assert {len(found) for found in solutions} == {0, 1}
        assert [math.floor(right_side(26.0, 0.05, j)) for j in (0, 1)] == [1, 0]

    def test_value(self) -> None:
        term = 40 + math.log(20) + math.log(2) / 2 * (2 + math.log(40 / math.log(20) + 1))
        expected = 0.1 + 0.5 * math.sqrt(5 / 800) + (1 + 1 / math.e) * math.sqrt(term / 1600)
        assert theorem2(0.1, 40.0, 5, 800, 0.05) == pytest.approx(expected)


class TestLemma3:
    SETTINGS: ClassVar = {"lipschitz": 0.7, "eta": 60.0, "samples": 900, "delta": 0.05}

    def right_side_of_7(
        self, scales: np.ndarray, diagonal: np.ndarray, reach: np.ndarray, outer: np.ndarray
    ) -> float:
        total = 0.1 + math.log(20) / 60 + 60 / 1800
        for sigma, h, kappa, tau in zip(scales, diagonal, reach, outer, strict=True):
            total += (
                h * sigma**2 / 6
                + 0.7 * math.sqrt(len(diagonal)) * kappa * sigma**2 / 18
                + math.log(tau / sigma) / 60
            )
        return total

    def problem(self) -> tuple[np.ndarray, ...]:
        random = np.random.default_rng(0)
        weights, diagonal = random.normal(size=6), random.exponential(size=6)
        diagonal[0] = 0.0
        reach = 0.1 * np.abs(weights) + 0.1
        return weights, diagonal, reach, np.abs(weights) + reach + random.exponential(size=6)

    def test_scales_minimize_7_and_8_is_above_it(self) -> None:
        weights, diagonal, reach, outer = self.problem()
        found = lemma3(0.1, weights, diagonal, reach, outer, **self.SETTINGS)
        best = optimize.minimize(
            self.right_side_of_7,
            reach / 2,
            args=(diagonal, reach, outer),
            bounds=[(1e-6, kappa) for kappa in reach],
        )
        assert found.scales.numpy() == pytest.approx(best.x, rel=1e-3)
        assert found.tight == pytest.approx(
            self.right_side_of_7(found.scales.numpy(), diagonal, reach, outer), rel=1e-12
        )
        expected = (
            0.1 + (3 + np.log(outer / found.scales.numpy()).sum() + math.log(20)) / 60 + 60 / 1800
        )
        assert found.bound == pytest.approx(expected, rel=1e-12)
        assert found.tight <= min(found.bound, best.fun + 1e-9)

    def test_is_the_bound_of_theorem_2_with_its_scales(self) -> None:
        _, diagonal, reach, _ = self.problem()
        scales = uniform_scales(diagonal, reach, lipschitz=0.7, eta=math.sqrt(6 * 900))
        rise = ((diagonal / 6 + 0.7 * math.sqrt(6) * reach / 18) * scales.numpy() ** 2).sum()
        assert rise <= 0.5 * math.sqrt(6 / 900)

    def test_refuses_what_the_lemma_does_not_cover(self) -> None:
        weights, diagonal, reach, outer = self.problem()
        with pytest.raises(InputError, match="does not apply"):
            lemma3(0.1, weights, diagonal - 1, reach, outer, **self.SETTINGS)
        with pytest.raises(InputError, match="must contain"):
            lemma3(0.1, weights, diagonal, reach, outer / 3, **self.SETTINGS)


def test_lemma_5_is_lemma_3_before_the_diagonal_for_one_weight() -> None:
    found = lemma3(0.1, [1.0], [2.0], [0.3], [2.0], lipschitz=0.0, eta=50.0, samples=500, delta=0.1)
    sigma = float(found.scales)
    kl = uniform_kl([1.0], sigma, [2.0])
    same = lemma5(
        0.1, 2.0, sigma**2 / 3, sigma**3 / 4, kl, lipschitz=0.0, eta=50.0, samples=500, delta=0.1
    )
    assert same == pytest.approx(found.tight, rel=1e-12)
    rough = lemma5(
        0.1, 2.0, sigma**2 / 3, sigma**3 / 4, kl, lipschitz=6.0, eta=50.0, samples=500, delta=0.1
    )
    assert rough - same == pytest.approx(sigma**3 / 4)
