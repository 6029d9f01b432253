"""Splits and standardization, against scikit-learn and by properties."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from mindgap.core.errors import InputError
from mindgap.data import standardize, stratified_folds, stratified_split

LABELS = st.lists(st.integers(0, 4), min_size=2, max_size=120).map(torch.tensor)


@given(LABELS, st.integers(0, 1000), st.floats(0.0, 1.0))
def test_parts_are_disjoint_whole_and_fair(labels, seed, fraction):
    first, second = stratified_split(labels, (fraction, 1 - fraction), seed)
    assert sorted(torch.cat([first, second]).tolist()) == list(range(len(labels)))
    assert len(first) == round(fraction * len(labels))
    share = len(first) / len(labels)
    for label in labels.unique():
        expected = share * int((labels == label).sum())
        assert abs(int((labels[first] == label).sum()) - expected) <= 1


@given(LABELS, st.integers(0, 1000), st.data())
def test_folds_cover_everything_once_and_are_fair(labels, seed, data):
    folds = data.draw(st.integers(2, len(labels)))
    pairs = stratified_folds(labels, folds, seed)
    assert sorted(torch.cat([test for _, test in pairs]).tolist()) == list(range(len(labels)))
    sizes = [len(test) for _, test in pairs]
    assert max(sizes) - min(sizes) <= 1
    for train, test in pairs:
        assert sorted(train.tolist() + test.tolist()) == list(range(len(labels)))
    for label in labels.unique():
        counts = [int((labels[test] == label).sum()) for _, test in pairs]
        assert max(counts) - min(counts) <= 1


def test_class_counts_agree_with_scikit_learn():
    labels = torch.tensor([0] * 30 + [1] * 20 + [2] * 10)
    ours = [torch.bincount(labels[test]).tolist() for _, test in stratified_folds(labels, 5)]
    theirs = [
        torch.bincount(labels[test]).tolist()
        for _, test in StratifiedKFold(5).split(labels, labels)
    ]
    assert ours == theirs


def test_seed_decides_and_nothing_global_moves():
    labels = torch.arange(100) % 3
    state = torch.get_rng_state()
    one, again, other = (stratified_split(labels, (50,), seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_sizes_may_leave_samples_over():
    parts = stratified_split(torch.arange(100) % 4, (40, 20, 0))
    assert [len(part) for part in parts] == [40, 20, 0]
    assert len(set(torch.cat(parts).tolist())) == 60


def test_regression_is_split_at_random():
    first, second = stratified_split(torch.randn(50, 1), (0.5, 0.5), seed=3)
    assert len(first) == len(second) == 25


def test_every_sample_is_equally_likely():
    hits = torch.zeros(12)
    for seed in range(600):
        hits[stratified_split(torch.tensor([0] * 8 + [1] * 4), (6,), seed)[0]] += 1
    assert ((hits / 600 - 0.5).abs() < 0.1).all()


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            (90, 20),
            "parts must be sizes of at least 0 that sum to at most 100 (the number of samples), "
            "got 90, 20. ",
        ),
        (
            (-1, 20),
            "parts must be sizes of at least 0 that sum to at most 100 (the number of samples), "
            "got -1, 20. ",
        ),
        (
            (0.7, 0.7),
            "parts must be fractions that sum to at most 1, got 0.7, 0.7. Lower one of them.",
        ),
        ((-0.1,), "parts must be fractions that sum to at most 1, got -0.1. Lower one of them."),
        (
            (float("nan"),),
            "parts must be a sequence of integers or a sequence of numbers, got (nan,).",
        ),
        (
            (0.5, 20),
            "parts must be all integers (sizes) or all floats (fractions), got 0.5, 20. Choose "
            "one.",
        ),
        (
            (True, 1),
            "parts must be a sequence of integers or a sequence of numbers, got (True, 1).",
        ),
        ((), "parts must hold at least one size or fraction, got none."),
    ],
)
def test_bad_parts(parts, text):
    with pytest.raises(InputError) as caught:
        stratified_split(torch.zeros(100), parts)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("folds", "text"),
    [
        (500, "got 500. Lower folds or pass more data."),
        (1, "got 1. Raise folds."),
    ],
)
def test_bad_folds(folds, text):
    with pytest.raises(InputError) as caught:
        stratified_folds(torch.zeros(300), folds)
    assert (
        str(caught.value)
        == "folds must be an integer from 2 to 300 (the number of samples), " + text
    )


def test_bad_seed_and_no_data():
    with pytest.raises(InputError, match="seed must be an integer"):
        stratified_split(torch.zeros(3), (1,), seed=-1)
    with pytest.raises(InputError, match="targets must hold at least one sample"):
        stratified_split(torch.zeros(0), (1,))


def test_standardize_is_scikit_learns():
    random = np.random.default_rng(0)
    train, test = random.normal(3, [1, 10, 0.1], (50, 3)), random.normal(3, 2, (20, 3))
    scaler = StandardScaler().fit(train)
    ours = standardize(torch.from_numpy(train), torch.from_numpy(test))
    for mine, table in zip(ours, (train, test), strict=True):
        np.testing.assert_allclose(mine.numpy(), scaler.transform(table), atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, -7.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_columns_become_zero(value, dtype):
    train = torch.stack([torch.full((30,), value, dtype=dtype), torch.arange(30).to(dtype)], dim=1)
    scaled, other = standardize(train, train + 1)
    assert scaled[:, 0].abs().max() <= 1e-7 * max(1, abs(value))
    assert torch.allclose(other[:, 0], (train + 1 - train)[:, 0], atol=1e-6 * max(1.0, abs(value)))
    assert scaled.dtype == dtype


def test_standardize_checks():
    with pytest.raises(InputError, match=r"floating point numbers, got torch\.int64"):
        standardize(torch.arange(3))
    with pytest.raises(InputError, match=r"the columns of train, \(2,\), got \(3,\)"):
        standardize(torch.zeros(2, 2), torch.zeros(2, 3))
    with pytest.raises(InputError, match="at least one sample"):
        standardize(torch.zeros(0, 2))
