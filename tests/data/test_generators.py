"""Generators: what is drawn follows the law that they promise."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.data import gaussian_mixture, heteroscedastic, modular_arithmetic, teacher, two_moons
from mindgap.data.generators import heteroscedastic_mean, heteroscedastic_std

ALL = [two_moons, gaussian_mixture, heteroscedastic, teacher, modular_arithmetic]


@pytest.mark.parametrize("make", ALL)
def test_seed_decides_and_nothing_global_moves(make):
    state = torch.get_rng_state()
    one, again, other = make(seed=1), make(seed=1), make(seed=2)
    for name in ("inputs", "targets", "test_inputs", "test_targets"):
        assert torch.equal(getattr(one, name), getattr(again, name))
    assert not torch.equal(one.inputs, other.inputs)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("make", ALL[:-1])
def test_sizes(make):
    data = make(size=33, test_size=44)
    assert (len(data), len(data.test_inputs)) == (33, 44)
    with pytest.raises(InputError, match="size must be an integer of at least"):
        make(size=0)


@pytest.mark.parametrize("size", [100, 101])
def test_moons_are_scikit_learns(size):
    points, labels = make_moons(size, shuffle=False)
    ours = two_moons(size=size, noise=0.0, grid=True)
    mine = torch.cat([ours.targets[:, None], ours.inputs], dim=1).numpy()
    theirs = np.hstack([labels[:, None], points])
    np.testing.assert_allclose(sorted(map(tuple, mine)), sorted(map(tuple, theirs)), atol=1e-6)


def test_moons_noise_has_the_asked_deviation():
    data = two_moons(size=20_000, noise=0.3)
    upper = data.inputs[data.targets == 0]
    # on the upper moon E|x|² = 1 + 2 σ²
    assert float(upper.square().sum(dim=1).mean()) == pytest.approx(1 + 2 * 0.09, rel=0.03)


def test_heteroscedastic_noise():
    data = heteroscedastic(size=200_000, noise=0.7)
    rest = (data.targets - heteroscedastic_mean(data.inputs)).double()
    assert float(rest.square().mean()) == pytest.approx(data.facts["noise_variance"], rel=0.02)
    unit = rest / heteroscedastic_std(data.inputs, 0.7)
    for part in (data.inputs < -0.5, data.inputs > 0.5):
        assert float(unit[part].std()) == pytest.approx(1, rel=0.02)
    assert float(heteroscedastic_std(torch.tensor(-1.0))) == pytest.approx(0.1)
    assert float(heteroscedastic_std(torch.tensor(1.0))) == pytest.approx(0.5)


def test_teacher_labels_are_noisy_by_exactly_the_asked_part():
    clean, noisy = teacher(seed=4), teacher(noise=0.2, seed=4)
    assert torch.equal(clean.inputs, noisy.inputs)
    assert int((clean.targets != noisy.targets).sum()) == 200
    assert torch.equal(clean.test_targets, noisy.test_targets)


def test_teacher_classes_are_all_there():
    for seed in range(5):
        counts = torch.bincount(
            teacher(size=3000, widths=(10, 20, 4), seed=seed).targets, minlength=4
        )
        assert counts.min() > 150


def test_teacher_regression():
    clean = teacher(size=20_000, widths=(5, 10, 1), task="regression", seed=1)
    noisy = teacher(size=20_000, widths=(5, 10, 1), task="regression", noise=0.5, seed=1)
    assert clean.targets.shape == (20_000, 1)
    assert float((noisy.targets - clean.targets).std()) == pytest.approx(0.5, rel=0.03)
    assert noisy.facts["noise_variance"] == 0.25


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: two_moons(noise=-1.0),
            "noise must be a number of at least 0, got -1.0. Raise noise.",
        ),
        (
            lambda: gaussian_mixture(std=0.0),
            "std must be a number of at least 1e-12, got 0.0. Raise std.",
        ),
        (
            lambda: gaussian_mixture(classes=1),
            "classes must be an integer of at least 2, got 1. Raise classes.",
        ),
        (lambda: teacher(widths=(3,)), "widths must hold at least two integers"),
        (
            lambda: teacher(widths=(3, 1)),
            "widths[-1] must be an integer of at least 2, got 1. Raise widths[-1].",
        ),
        (lambda: teacher(noise=1.5), "noise must be a number from 0 to 1, got 1.5. Lower noise."),
        (
            lambda: modular_arithmetic(8, "/"),
            "modulus must be prime for division, got 8. Pass for example 97.",
        ),
        (
            lambda: modular_arithmetic(5, train_fraction=1.0),
            "train_fraction must leave at least one equation on each",
        ),
    ],
)
def test_bad_arguments(call, text):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(text)


def test_misspelled_names():
    with pytest.raises(UnknownNameError, match="activation must be one of"):
        teacher(activation="rlu")
    with pytest.raises(UnknownNameError, match="operation must be one of"):
        modular_arithmetic(5, "x")
