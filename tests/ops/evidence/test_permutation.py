"""Permutation sums: exact moments by enumeration, honest tails."""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy import stats

from mindgap.ops.evidence.permutation import excess, least_p_values, tarone


def test_moments_are_those_of_all_permutations() -> None:
    scores = torch.tensor([3.0, 0.0, -1.0, 5.0, 2.0, 2.5, 0.5]).double()
    strata = torch.tensor([0, 0, 0, 0, 7, 7, 7])
    chosen = torch.tensor([True, False, False, True, False, True, False])
    sums = torch.tensor(
        [
            sum(scores[list(first)]) + scores[second]
            for first in itertools.combinations(range(4), 2)
            for second in (4, 5, 6)
        ]
    )
    found = excess(scores[:, None], chosen, strata)
    apart = sums - sums.mean()
    assert float(found.difference) == pytest.approx(float(scores[chosen].sum() - sums.mean()))
    assert float(found.variance) == pytest.approx(float(apart.square().mean()))
    skewness = float((apart**3).mean() / apart.square().mean() ** 1.5)
    assert float(found.skewness) == pytest.approx(skewness)


@pytest.mark.parametrize(("drawn", "hits"), [(200, 30), (200, 33), (400, 37), (400, 40)])
def test_tail_is_close_to_the_hypergeometric_one(drawn: int, hits: int) -> None:
    total, marked = 600, 45
    scores, chosen = torch.zeros(total), torch.zeros(total, dtype=torch.bool)
    scores[:marked] = 1
    chosen[:hits] = True
    chosen[marked : marked + drawn - hits] = True
    p = excess(scores[:, None], chosen, torch.zeros(total).long()).p_values()[0]
    # Without a correction for steps the tail lies between "at least" and "more than".
    least = stats.hypergeom.sf(hits, total, marked, drawn)
    assert least < p < 2 * stats.hypergeom.sf(hits - 1, total, marked, drawn)


def test_least_p_value_is_that_of_choosing_all_marked() -> None:
    strata, chosen = torch.tensor([0] * 6 + [1] * 5), torch.arange(11) % 2 == 0
    marked = torch.zeros(11, 3)
    marked[[0, 1, 7], 0] = 1
    marked[[0, 2, 4, 5], 1] = 1  # four are marked in a stratum of which three are chosen
    expected = stats.hypergeom.pmf(2, 6, 2, 3) * stats.hypergeom.pmf(1, 5, 1, 3)
    assert least_p_values(marked, chosen, strata).tolist() == pytest.approx([expected, 0, 1])


def test_tarone_counts_tests_that_could_reject() -> None:
    least = torch.tensor([1e-6, 1e-4, 4e-4, 0.2, 0.5, 1])
    p = torch.tensor([1e-9, 2e-3, 0.9, 0.2, 0.5, 1])
    # Three tests can have p <= 7e-4, and two p <= 7e-4 / 2: two are counted.
    assert tarone(p, least, 7e-4).tolist() == pytest.approx([2e-6, 1.2e-2, 1, 1, 1, 1], rel=1e-6)
    random = torch.Generator().manual_seed(0)
    strata, false = torch.zeros(60).long(), 0
    marked = (torch.rand(60, 40, generator=random) < 0.08).double()
    for _ in range(500):
        chosen = torch.rand(60, generator=random).argsort() < 40
        values = torch.tensor(excess(marked, chosen, strata).p_values())
        false += bool((tarone(values, least_p_values(marked, chosen, strata), 0.05) <= 0.05).any())
    assert false <= stats.binom.isf(1e-4, 500, 0.05)


def test_strongly_skewed_sums_stay_on_the_safe_side() -> None:
    scores, chosen = torch.zeros(100), torch.ones(100, dtype=torch.bool)
    scores[:3] = 1  # all three marked ones are among the 90 chosen: chance 0.73
    chosen[90:] = False
    p = excess(scores[:, None], chosen, torch.zeros(100).long()).p_values()[0]
    assert p > 0.2


def test_equal_scores_say_nothing() -> None:
    chosen = torch.arange(10) < 5
    assert excess(torch.full((10, 1), 0.1), chosen, torch.zeros(10).long()).p_values() == [1.0]
    alone = excess(torch.rand(10, 1), chosen, torch.arange(10))
    assert alone.p_values() == [1.0]


def test_p_values_are_uniform_if_nothing_is_wrong() -> None:
    random = torch.Generator().manual_seed(0)
    scores = torch.rand(300, 1, generator=random) ** 8 * 20
    strata = torch.randint(0, 5, (300,), generator=random)
    found = []
    for _ in range(400):
        chosen = torch.rand(300, generator=random) < 0.7
        found += excess(scores, chosen, strata).p_values()
    assert stats.kstest(found, "uniform").pvalue > 1e-3
