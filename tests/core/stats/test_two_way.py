"""The two-way test against brute force, a closed form and simulated tables."""

import math

import numpy as np
import pytest
from scipy import stats

from mindgap.core import InputError, minimum_detectable, stratified, two_way


def _brute(table: np.ndarray) -> tuple[float, float, float]:
    """Sum the squares cell by cell, as a textbook on analysis of variance does."""
    seeds, samples = table.shape
    grand = sum(table[s, i] for s in range(seeds) for i in range(samples)) / table.size
    rows = [sum(table[s]) / samples for s in range(seeds)]
    columns = [sum(table[:, i]) / seeds for i in range(samples)]
    by_seed = samples * sum((row - grand) ** 2 for row in rows) / (seeds - 1)
    by_sample = seeds * sum((column - grand) ** 2 for column in columns) / (samples - 1)
    rest = sum(
        (table[s, i] - rows[s] - columns[i] + grand) ** 2
        for s in range(seeds)
        for i in range(samples)
    ) / ((seeds - 1) * (samples - 1))
    return by_seed, by_sample, rest


def _table(rng: np.random.Generator, seeds: int, samples: int, parts=(1.0, 1.0, 1.0), gain=0.0):
    a, b, c = (math.sqrt(part) for part in parts)
    return (
        gain
        + a * rng.normal(size=(seeds, 1))
        + b * rng.normal(size=(1, samples))
        + c * rng.normal(size=(seeds, samples))
    )


def test_parts_and_p_value_equal_brute_force():
    table = _table(np.random.default_rng(0), 7, 11)
    by_seed, by_sample, rest = _brute(table)
    found = two_way(table)
    variance = max(by_seed + by_sample - rest, by_seed, by_sample) / table.size
    freedom = (variance * table.size) ** 2 / (by_seed**2 / 6 + by_sample**2 / 10 + rest**2 / 60)
    assert found.difference == pytest.approx(table.mean())
    assert found.freedom == pytest.approx(freedom)
    assert found.seed_part == pytest.approx(max(0, (by_seed - rest) / 11))
    assert found.sample_part == pytest.approx(max(0, (by_sample - rest) / 7))
    assert found.residual == pytest.approx(rest)
    statistic = table.mean() / math.sqrt(variance)
    assert found.p_value == pytest.approx(stats.t.sf(statistic, freedom))
    half = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    assert found.interval.high - found.difference == pytest.approx(half, rel=1e-6)


def test_the_interval_and_the_one_sided_level_agree():
    for seed in range(40):
        found = two_way(_table(np.random.default_rng(seed), 6, 30, gain=0.9))
        assert (found.p_value < 0.025) == (found.interval.low > 0)
        assert (found.harm < 0.025) == (found.interval.high < 0)


def test_rows_that_are_constant_give_students_test_over_seeds():
    rows = np.array([0.3, 0.1, 0.4, 0.2, 0.5])
    found = two_way(np.repeat(rows[:, None], 50, axis=1))
    assert found.freedom == pytest.approx(4, rel=1e-6)
    assert found.p_value == pytest.approx(stats.ttest_1samp(rows, 0, alternative="greater").pvalue)


def test_equal_seeds_give_students_test_over_samples():
    columns = np.random.default_rng(1).normal(0.3, 1, size=40)
    found = two_way(np.repeat(columns[None], 8, axis=0))
    expected = stats.ttest_1samp(columns, 0, alternative="greater").pvalue
    assert found.freedom == pytest.approx(39, rel=1e-6)
    assert found.p_value == pytest.approx(expected)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.0])
def test_equal_differences_prove_nothing(value: float):
    found = two_way(np.full((5, 9), value))
    assert found.constant
    assert found.p_value == 1.0
    assert found.harm == 1.0
    assert minimum_detectable(found) == 0.0


@pytest.mark.parametrize("parts", [(1.0, 0.0, 4.0), (0.05, 1.0, 2.0), (0.0, 0.0, 1.0)])
def test_false_alarms_keep_the_level_where_a_test_over_seeds_does_not(parts):
    rng = np.random.default_rng(3)
    tables = [_table(rng, 10, 60, parts) for _ in range(800)]
    wrong = np.mean([two_way(table).p_value < 0.025 for table in tables])
    assert wrong < 0.025 + 3 * math.sqrt(0.025 / 800)
    if parts[1]:
        naive = stats.ttest_1samp(np.array([t.mean(1) for t in tables]), 0, axis=1)
        assert np.mean((naive.statistic > 0) & (naive.pvalue < 0.05)) > 0.1


def test_a_minimum_detectable_difference_is_found_with_its_power():
    rng, parts = np.random.default_rng(5), (0.3, 2.0, 1.5)
    large = two_way(_table(rng, 300, 300, parts))
    gain = minimum_detectable(large, seeds=20, samples=80)
    closed = math.sqrt(large.seed_part / 20 + large.sample_part / 80 + large.residual / 1600)
    assert 2.7 * closed < gain < 3.2 * closed
    hits = [two_way(_table(rng, 20, 80, parts, gain)).p_value < 0.025 for _ in range(300)]
    assert 0.72 < np.mean(hits) < 0.88


def test_endless_seeds_leave_the_samples_part():
    found = two_way(_table(np.random.default_rng(7), 12, 50, (1.0, 1.0, 1.0)))
    least = minimum_detectable(found, seeds=math.inf)
    t = stats.t(49)
    expected = (t.ppf(0.975) + t.ppf(0.8)) * math.sqrt(found.sample_part / 50)
    assert least == pytest.approx(expected, rel=1e-6)
    assert least < minimum_detectable(found, seeds=100) < minimum_detectable(found)


@pytest.mark.parametrize("table", [[1.0, 2.0], [[1.0, 2.0]], [[1.0], [2.0]]])
def test_too_small_tables_are_refused(table):
    with pytest.raises(InputError, match="at least two seeds and two samples"):
        two_way(table)


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="finite differences"):
        two_way([[1.0, math.nan], [0.0, 1.0]])


def test_strata_equal_the_formula_written_out():
    rng = np.random.default_rng(3)
    tables = [_table(rng, 5, 20, gain=0.4), _table(rng, 8, 30), _table(rng, 5, 50)]
    parts = [two_way(table) for table in tables]
    found = stratified(parts)
    shares = [0.2, 0.3, 0.5]
    variance = sum((w * part.standard_error) ** 2 for w, part in zip(shares, parts, strict=True))
    freedom = variance**2 / sum(
        (w * part.standard_error) ** 4 / part.freedom for w, part in zip(shares, parts, strict=True)
    )
    mean = np.concatenate([table.mean(0) for table in tables]).mean()  # every sample counts once
    assert found.difference == pytest.approx(mean)
    assert found.standard_error == pytest.approx(math.sqrt(variance))
    assert found.p_value == pytest.approx(stats.t.sf(mean / math.sqrt(variance), freedom))
    half = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    assert found.interval.high - mean == pytest.approx(half, rel=1e-6)
    assert (found.seeds, found.samples) == (5, 100)


def test_one_stratum_is_the_test_itself():
    part = two_way(_table(np.random.default_rng(4), 6, 25, gain=0.3))
    found = stratified([part])
    assert found.difference == pytest.approx(part.difference)
    assert found.p_value == pytest.approx(part.p_value)
    assert minimum_detectable(found) == pytest.approx(minimum_detectable(part))


def test_strata_hold_their_level_on_tables_of_unequal_noise():
    """The one-sided level of 2.5 % is kept, up to the luck of 300 draws."""
    rng, hits = np.random.default_rng(5), 0
    for _ in range(300):
        parts = [two_way(_table(rng, 6, 30, (0.1, 4.0 * k, 1.0))) for k in (1, 2, 3)]
        hits += stratified(parts).p_value < 0.025
    assert 1 <= hits <= 15


def test_equal_differences_in_all_strata_prove_nothing():
    found = stratified([two_way(np.ones((3, 4))), two_way(np.ones((3, 2)))])
    assert (found.difference, found.p_value, found.constant) == (1.0, 1.0, True)
    with pytest.raises(InputError, match="at least one part, got none"):
        stratified([])
