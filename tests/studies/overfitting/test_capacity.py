"""Bias, variance and noise: closed forms, scikit-learn's trees, and the sum against the test error."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from mindgap.core import Trial
from mindgap.core.stats import mean_interval
from mindgap.studies.overfitting.capacity import OverfittingCapacity, World
from mindgap.studies.overfitting.predictors import polynomial, polynomial_parts, split, tree


@pytest.mark.parametrize("depth", range(7))
def test_trees_are_those_of_scikit_learn(depth: int) -> None:
    random = np.random.default_rng(depth)
    x, at = random.uniform(-1, 1, 60), random.uniform(-1, 1, 500)
    y = np.sin(3 * x) + random.normal(size=60)
    if depth == 0:
        wanted = np.full(500, y.mean())
    else:
        wanted = DecisionTreeRegressor(max_depth=depth).fit(x[:, None], y).predict(at[:, None])
    assert np.allclose(tree(x, y, depth)(at), wanted, atol=1e-12)


def test_trees_never_cut_between_equal_inputs() -> None:
    x, y = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 4.0, 5.0, 7.0])
    assert tree(x, y, 5)(np.array([0.0, 1.0])).tolist() == [2.0, 6.0]


@pytest.mark.parametrize("degree", [0, 1, 3, 8])
def test_the_split_of_polynomials_is_the_closed_form(degree: int) -> None:
    random, draws = np.random.default_rng(degree), 20_000
    x, at = np.linspace(-1, 1, 15), np.linspace(-0.9, 0.9, 7)
    means = [np.sin(3 * part) for part in (x, at)]
    noise = [0.1 + 0.2 * (1 + part) ** 2 for part in (x, at)]
    hats = polynomial(x, np.eye(15), degree)(at)  # linear in the targets
    targets = means[0] + np.sqrt(noise[0]) * random.normal(size=(draws, 15))
    found = split(targets @ hats.T, means[1], noise[1])
    wanted = polynomial_parts(x, tuple(means), tuple(noise), at, degree)
    assert found.noise == wanted.noise
    assert found.variance == pytest.approx(wanted.variance, rel=0.03)
    assert found.bias == pytest.approx(wanted.bias, rel=0.03, abs=0.002)


def test_the_squared_bias_is_unbiased() -> None:
    random = np.random.default_rng(0)
    found = [
        split(random.normal(size=(4, 3)) + 1, np.zeros(3), np.zeros(3)).bias for _ in range(3000)
    ]
    interval = mean_interval(found, level=0.999)
    assert interval.low <= 1 <= interval.high


def test_bias_variance_and_noise_add_up_to_the_test_error() -> None:
    study = OverfittingCapacity(samples=20, more=300)
    for family, capacity in (("polynomial degree", 4), ("tree depth", 3)):
        record = study.run(Trial(parameters={"family": family, "capacity": capacity}))
        interval = mean_interval(record["test"], level=0.999)
        assert (
            interval.low <= record["bias"] + record["variance"] + record["noise"] <= interval.high
        )
        if "closed_form" in record:
            assert interval.low <= record["closed_form"] <= interval.high


def test_the_world_has_the_noise_it_says() -> None:
    world = World(2000, 20)
    spread = (world.targets - np.sin(np.pi * world.inputs)).std(0)
    assert spread[-200:].mean() == pytest.approx(0.5, rel=0.1)
    assert spread[:200].mean() == pytest.approx(0.1, rel=0.15)


def test_the_table_names_what_over_fits() -> None:
    study = OverfittingCapacity(degrees=(3, 11), samples=14, more=60)
    trials = [trial for trial in study.trials() if trial["family"] == "polynomial degree"]
    table = study.summarize([(trial, study.run(trial)) for trial in trials])
    assert any("polynomial degree" in note and "over-fits" in note for note in table.notes)
    assert [row[1] for row in table.rows] == [3, 11]
