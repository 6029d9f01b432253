"""Renamed classes and lags, against brute force."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import stats

from mindgap.ops.evidence.alignment import _log_tail, find_lag, renamed


def drawn(classes: int, count: int, seed: int) -> torch.Tensor:
    return torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(seed))


def test_renaming_is_the_best_of_all() -> None:
    labels = drawn(4, 300, 0)
    predicted = torch.tensor([2, 1, 0, 3])[labels]
    predicted[::7] = drawn(4, len(predicted[::7]), 1)
    found = renamed(labels, predicted, 4)
    best = max(
        itertools.permutations(range(4)),
        key=lambda names: int((torch.tensor(names)[labels] == predicted).sum()),
    )
    assert tuple(found.names.tolist()) == best
    assert found.moved == (0, 2)
    assert found.after > 0.8 > 0.2 > found.before
    assert found.p_value < 1e-20


def test_a_p_value_that_rounds_to_zero_still_counts_what_was_tried() -> None:
    tail = stats.binom.logsf(889, 1000, 0.5)
    assert _log_tail(890, 1000) == pytest.approx(tail, rel=1e-9)
    exact = -5000 * math.log(2)  # only one outcome
    assert _log_tail(5000, 5000) == pytest.approx(exact)


def test_chance_gains_are_dropped() -> None:
    for seed in range(20):
        found = renamed(drawn(6, 200, seed), drawn(6, 200, seed + 100), 6)
        assert found is None or found.p_value > 1e-3


def test_agreement_is_that_of_every_lag() -> None:
    labels, predicted = drawn(3, 101, 0), drawn(3, 101, 1)
    found = find_lag(predicted, labels, "classification")
    for lag in (0, 1, 7, -3):
        expected = float((predicted == labels.roll(-lag)).double().mean())
        assert float(found.agreement[lag]) == pytest.approx(expected)


def test_lag_of_numbers_is_a_rank_correlation_with_shared_ranks() -> None:
    random = torch.Generator().manual_seed(0)
    targets = torch.randn(90, 1, generator=random).round()
    predicted = targets.roll(-4, 0) + 0.3 * torch.randn(90, 1, generator=random)
    found = find_lag(predicted, targets, "regression")
    assert found.best == 4
    expected = stats.spearmanr(predicted[:, 0], targets.roll(-4, 0)[:, 0]).statistic
    assert found.then == pytest.approx(expected)
    assert found.p_value < 1e-6


def test_many_classes_are_coded() -> None:
    labels = drawn(500, 400, 0)
    assert find_lag(labels, labels.roll(-3), "classification").best == -3


@pytest.mark.parametrize("classes", [3, 200])
def test_classes_that_are_never_predicted_count_as_wrong(classes: int) -> None:
    """Whatever the classes of either side, both have the same codes."""
    labels, predicted = drawn(classes, 2001, 0), drawn(3, 2001, 1)
    found = find_lag(predicted, labels, "classification")
    right = (predicted == labels).double().mean()
    assert float(found.agreement[0]) == pytest.approx(float(right), abs=0.03 * (classes > 64))


def test_slow_series_have_no_peak() -> None:
    steps = torch.arange(400)
    slow = (steps // 20 % 4).long()  # the same class for twenty rows
    found = find_lag(slow.roll(1), slow, "classification")
    assert found.then - found.usual < 0.1
