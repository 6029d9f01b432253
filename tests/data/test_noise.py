"""Label noise and target noise by an exact amount."""

import pytest
import torch
from hypothesis import given, strategies as st

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.data import digits, gaussian_noise, heteroscedastic, label_noise, with_label_noise

LABELS = torch.arange(1000) % 10


@given(st.floats(0, 1), st.sampled_from(["symmetric", "pair"]), st.integers(0, 100))
def test_exactly_the_asked_fraction_is_wrong(fraction, kind, seed):
    noisy, mask = label_noise(LABELS, fraction, kind, seed=seed)
    assert torch.equal(noisy != LABELS, mask)
    assert int(mask.sum()) == round(fraction * 1000)
    assert 0 <= int(noisy.min()) <= int(noisy.max()) <= 9


def test_pairs_move_to_the_next_class():
    noisy, mask = label_noise(LABELS, 0.4, "pair")
    assert torch.equal(noisy[mask], (LABELS[mask] + 1) % 10)


def test_symmetric_is_uniform_over_the_other_classes():
    labels = torch.zeros(90_000, dtype=torch.int64)
    counts = torch.bincount(label_noise(labels, 1.0, classes=10)[0], minlength=10)
    assert counts[0] == 0
    assert ((counts[1:] - 10_000).abs() < 5 * 100).all()


def test_random_may_keep_the_label():
    labels = torch.zeros(100_000, dtype=torch.int64)
    noisy, mask = label_noise(labels, 0.5, "random", classes=10)
    assert int(mask.sum()) == 50_000
    assert int((noisy[mask] == 0).sum()) == pytest.approx(5_000, abs=400)
    assert not noisy[~mask].any()


def test_seed_decides_and_input_stays():
    before = LABELS.clone()
    state = torch.get_rng_state()
    one, again, other = (label_noise(LABELS, 0.3, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(LABELS, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_data_set_keeps_its_test_part_clean():
    data = digits()
    noisy, mask = with_label_noise(data, 0.2, seed=1)
    assert torch.equal(noisy.targets != data.targets, mask)
    assert noisy.test_targets is data.test_targets
    with pytest.raises(InputError, match="dataset must be a classification, got regression"):
        with_label_noise(heteroscedastic(), 0.1)


def test_gaussian_noise():
    targets = torch.zeros(100_000, 1)
    noise = gaussian_noise(targets, 2.0, seed=1)
    assert float(noise.std()) == pytest.approx(2, rel=0.02)
    assert float(noise.mean()) == pytest.approx(0, abs=0.03)
    assert torch.equal(noise, gaussian_noise(targets, 2.0, seed=1))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: label_noise(LABELS, 1.2),
            "fraction must be a number from 0 to 1, got 1.2. Lower fraction.",
        ),
        (
            lambda: label_noise(LABELS, float("nan")),
            "fraction must be a number, got nan.",
        ),
        (
            lambda: label_noise(LABELS, 0.1, classes=5),
            "classes must be an integer of at least 10, got 5. Raise",
        ),
        (
            lambda: label_noise(LABELS - 1, 0.1),
            "labels must be class numbers of at least 0, got -1.",
        ),
        (
            lambda: label_noise(LABELS.float(), 0.1),
            "labels must be class numbers of shape (n,) with n > 0, got",
        ),
        (
            lambda: gaussian_noise(LABELS, 1.0),
            "targets must be floating point numbers, got torch.int64.",
        ),
        (
            lambda: gaussian_noise(LABELS.float(), -1.0),
            "std must be a number of at least 0, got -1.0. Raise std.",
        ),
    ],
)
def test_bad_arguments(call, text):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(text)


def test_misspelled_kind():
    with pytest.raises(UnknownNameError, match="Did you mean 'symmetric'"):
        label_noise(LABELS, 0.1, "symetric")
