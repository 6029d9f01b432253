"""Statistics against SciPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import optimize, special, stats

from mindgap.core import special as ours, stats as mine
from mindgap.core.errors import InputError

random = np.random.default_rng(0)


@given(st.floats(0.05, 400), st.floats(0.05, 400), st.floats(0, 1))
@settings(deadline=None, max_examples=200)
def test_regularized_beta(a: float, b: float, x: float) -> None:
    assert ours.regularized_beta(a, b, x) == pytest.approx(
        special.betainc(a, b, x), rel=1e-9, abs=1e-13
    )


@given(st.integers(0, 5000), st.integers(1, 5000), st.floats(1e-6, 0.9))
@settings(deadline=None, max_examples=100)
def test_binomial_tail_inverse_is_clopper_pearson(errors: int, samples: int, delta: float) -> None:
    errors = min(errors, samples)
    expected = 1.0 if errors == samples else stats.beta.ppf(1 - delta, errors + 1, samples - errors)
    assert mine.binomial_tail_inverse(errors, samples, delta) == pytest.approx(expected, rel=1e-7)


def test_binomial_tail_inverse_inverts_the_tail() -> None:
    bound = mine.binomial_tail_inverse(7, 250, 0.03)
    assert stats.binom.cdf(7, 250, bound) == pytest.approx(0.03, rel=1e-9)


def test_binomial_tail_inverse_for_many_hypotheses() -> None:
    """1 - δ/|F| is one in floating point, so the lower tail has to be solved."""
    assert mine.binomial_tail_inverse(0, 100, 1e-9 / 1e9) == pytest.approx(0.3393065520, rel=1e-9)


@pytest.mark.parametrize(("errors", "samples"), [(0, 100), (10, 100), (30, 60), (500, 10_000)])
def test_binomial_tail_inverse_for_tiny_deltas(errors: int, samples: int) -> None:
    deltas = [10.0**-power for power in range(1, 301, 13)] + [1e-300]
    found = [mine.binomial_tail_inverse(errors, samples, delta) for delta in deltas]
    exact = 1 - special.betaincinv(samples - errors, errors + 1, deltas)
    assert found == pytest.approx(exact, rel=1e-9)
    assert found == sorted(found)
    assert mine.binomial_tail_inverse(errors, samples, 0.0) == 1.0  # δ/|F| that underflows


@given(st.floats(0.5, 400), st.floats(0.5, 400), st.floats(0, 1))
@settings(deadline=None, max_examples=200)
def test_log_upper_beta(a: float, b: float, x: float) -> None:
    rest = special.betaincc(a, b, x)
    if rest > 1e-290:
        assert ours.log_upper_beta(a, b, x) == pytest.approx(math.log(rest), rel=1e-9, abs=1e-12)


def test_large_samples() -> None:
    bound = mine.binomial_tail_inverse(12_345, 1_000_000, 0.05)
    assert bound == pytest.approx(stats.beta.ppf(0.95, 12_346, 1_000_000 - 12_345), rel=1e-9)


@given(st.floats(0, 0.999), st.floats(1e-9, 5))
@settings(deadline=None, max_examples=100)
def test_kl_inverse_returns_the_upper_end(rate: float, budget: float) -> None:
    bound = mine.kl_inverse(rate, budget)
    assert bound >= rate
    if bound < 1 - 1e-12:
        assert mine.binary_kl(rate, bound) == pytest.approx(budget, rel=1e-5, abs=1e-12)


def test_kl_inverse_against_a_root_finder() -> None:
    expected = optimize.brentq(lambda p: stats.entropy([0.1, 0.9], [p, 1 - p]) - 0.02, 0.1, 0.9)
    assert mine.kl_inverse(0.1, 0.02) == pytest.approx(expected, rel=1e-10)


def test_intervals_against_scipy() -> None:
    data = random.normal(size=37)
    low, high = stats.t.interval(0.9, 36, data.mean(), stats.sem(data))
    found = mine.mean_interval(data, 0.9)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    exact = stats.binomtest(3, 50).proportion_ci(0.95, "exact")
    found = mine.proportion_interval(3, 50)
    assert (found.low, found.high) == (pytest.approx(exact.low), pytest.approx(exact.high))
    assert mine.proportion_interval(0, 50).low == 0
    assert mine.proportion_interval(50, 50).high == 1


def test_paired_against_scipy() -> None:
    first, second = random.normal(0.3, 1, 12), random.normal(size=12)
    found = mine.paired(first, second)
    assert found.p_value == pytest.approx(stats.ttest_rel(first, second).pvalue, rel=1e-9)
    exact = stats.permutation_test(
        (first - second,),
        lambda d, axis: d.mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
    )
    assert found.permutation_p_value == pytest.approx(exact.pvalue, rel=1e-9)
    assert found.difference == pytest.approx((first - second).mean())


def test_paired_keeps_its_level_and_finds_an_effect() -> None:
    null = [
        mine.paired(random.normal(size=20), random.normal(size=20)).p_value < 0.05
        for _ in range(600)
    ]
    assert 0.02 < np.mean(null) < 0.085
    effect = random.normal(size=30)
    assert mine.paired(effect + 1 + 0.1 * random.normal(size=30), effect).permutation_p_value < 1e-3


def test_equal_and_constant_pairs() -> None:
    assert mine.paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).p_value == 1
    assert mine.paired([2.0, 3.0, 4.0], [1.0, 2.0, 3.0]).p_value == 0
    with pytest.raises(InputError, match="same seeds"):
        mine.paired([1.0, 2.0], [1.0])


def test_holm_against_its_definition() -> None:
    values = [0.03, 0.001, 0.2, 0.04]
    order = sorted(range(4), key=values.__getitem__)
    expected, highest = [0.0] * 4, 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (4 - rank) * values[place]))
        expected[place] = highest
    assert mine.holm(values) == pytest.approx(expected)


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlations_against_scipy(ties: bool) -> None:
    a, b = random.normal(size=40), random.normal(size=40)
    if ties:
        a, b = a.round(), b.round()
    assert mine.kendall_tau(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)
    assert mine.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert math.isnan(mine.spearman(a, np.ones(40)))
    assert math.isnan(mine.kendall_tau(np.ones(40), b))


def test_bootstrap_covers_and_repeats() -> None:
    data = random.exponential(size=200)
    found = mine.bootstrap(data, seed=1)
    assert found == mine.bootstrap(data, seed=1)
    low, high = stats.t.interval(0.95, 199, data.mean(), stats.sem(data))
    assert found.low == pytest.approx(low, abs=0.04)
    assert found.high == pytest.approx(high, abs=0.04)


def test_student_quantiles() -> None:
    for level, degrees in itertools.product((0.01, 0.6, 0.95, 0.9999), (1, 1.3, 9, 200.5)):
        expected = stats.t.ppf(0.5 + level / 2, degrees)
        assert ours.student_quantile(level, degrees) == pytest.approx(expected, rel=1e-9)
    assert ours.student_tail(1.3, 4) == pytest.approx(2 * stats.t.sf(1.3, 4), rel=1e-10)


def test_corrected_resampled_test_is_that_of_nadeau_and_bengio() -> None:
    """Against the formula with SciPy's distribution, and against the plain test without overlap."""
    left, right = random.normal(size=(2, 12))
    change = left - right
    found = mine.paired(left, right, overlap=0.25)
    error = math.sqrt((1 / 12 + 0.25) * change.var(ddof=1))
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(change.mean()) / error, 11), rel=1e-9)
    assert found.interval.high == pytest.approx(change.mean() + stats.t.ppf(0.975, 11) * error)
    assert math.isnan(found.permutation_p_value)
    plain = mine.paired(left, right)
    assert plain.p_value == pytest.approx(stats.ttest_rel(left, right).pvalue, rel=1e-9)
    tables = [np.stack([arm, arm + 0.1], 1) for arm in (left, right)]
    nested = mine.paired_nested(*tables, overlap=0.25).over_splits
    assert nested.p_value == pytest.approx(found.p_value)


def test_corrected_test_keeps_its_level_where_splits_overlap() -> None:
    """Two equal arms on random splits of the same data: the plain test rejects far too often."""
    samples, test, splits = 60, 20, 15
    rejected = {0.0: 0, test / (samples - test): 0}
    for _ in range(300):
        scores = random.normal(size=(2, samples))
        parts = [random.permutation(samples)[:test] for _ in range(splits)]
        left, right = ([row[part].mean() for part in parts] for row in scores)
        for overlap in rejected:
            rejected[overlap] += mine.paired(left, right, overlap=overlap).p_value < 0.05
    assert rejected[0.0] > 60
    assert rejected[test / (samples - test)] < 30
