"""Weights: scaling, controls, density correction, suspects, and the manners of scikit-learn."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from ops.helpers import features, labels
from torch.utils.data import WeightedRandomSampler

from mindgap.core.errors import InputError
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.local import local_variance
from mindgap.ops.variance.weights import (
    density_corrected,
    kernel_log_density,
    mixture_log_density,
    neighbor_log_density,
    permuted,
    scale_weights,
    uniform,
)

RANDOM = np.random.default_rng(0)


def test_scalings() -> None:
    v = torch.tensor([0.2, 0.4, 0.8]).double()
    assert scale_weights(v, 5).tolist() == pytest.approx([2, 3, 5])
    assert scale_weights(v, 5, scaling="min-max").tolist() == pytest.approx([1, 1 + 4 / 3, 5])
    assert scale_weights(v, 5, normalize="mean").mean() == pytest.approx(1)


@pytest.mark.parametrize("scaling", ["max", "min-max"])
@pytest.mark.parametrize("normalize", [None, "mean"])
def test_equal_labels_weigh_one(scaling: str, normalize: str | None) -> None:
    model = VarianceWeights(k=5, max_weight=9, scaling=scaling, normalize=normalize)  # type: ignore[arg-type]
    assert (model.fit(features(), torch.full((1000,), 7)).weights_ == 1).all()


def test_controls() -> None:
    weights = scale_weights(torch.rand(50), 5)
    mixed = permuted(weights, torch.Generator().manual_seed(0))
    assert not torch.equal(mixed, weights)
    assert torch.equal(mixed.sort().values, weights.sort().values)
    assert (uniform(weights) == 1).all()


@pytest.mark.parametrize("density", [None, "neighbors", "kernel", "mixture"])
def test_shuffling_moves_weights_along(density: str | None) -> None:
    rows, target, order = features()[:300].round(), labels(300), torch.randperm(300)
    model = VarianceWeights(k=8, density=density, normalize="mean")  # type: ignore[arg-type]
    plain = model.fit(rows, target).weights_
    assert np.isfinite(plain).all()
    assert plain.max() > plain.min()
    np.testing.assert_array_equal(model.fit(rows[order], target[order]).weights_, plain[order])


def test_densities_of_a_gaussian() -> None:
    rows = (
        torch.randn(3000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
        + 1000
    )
    truth = torch.distributions.Normal(1000.0, 3.0).log_prob(rows).sum(1)
    middle = truth > truth.quantile(0.2)
    from mindgap.ops.variance.local import local_variance

    square = local_variance(rows, rows, k=60).square_distance
    for found in (
        neighbor_log_density(square, 60, 2),
        kernel_log_density(rows),
        mixture_log_density(rows, 2),
    ):
        assert (found - truth)[middle].abs().mean() < 0.2
        assert np.corrcoef(found, truth)[0, 1] > 0.95


def test_kernel_density_is_that_of_scikit_learn() -> None:
    from sklearn.neighbors import KernelDensity

    rows = RANDOM.normal(size=(40, 3))
    rows = (rows - rows.mean(0)) / rows.std(0)
    wanted = [
        KernelDensity(bandwidth=0.5).fit(np.delete(rows, i, 0)).score_samples(rows[i : i + 1])[0]
        for i in range(40)
    ]
    np.testing.assert_allclose(kernel_log_density(torch.from_numpy(rows), 0.5), wanted, rtol=1e-9)


def test_single_gaussian_is_in_closed_form() -> None:
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-1.0, 0.3, 3.0]], dtype=torch.float64)
    rows = (
        torch.randn(500, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        @ mixing.T
    )
    wanted = torch.distributions.MultivariateNormal(
        rows.mean(0), rows.T.cov(correction=0)
    ).log_prob(rows)
    torch.testing.assert_close(mixture_log_density(rows, 1), wanted, rtol=1e-4, atol=1e-3)


def test_extreme_densities_stay_finite() -> None:
    variance, density = torch.rand(100), torch.linspace(-1e6, 1e6, 100)
    for share in (0.0, 0.05, 0.4):
        assert torch.isfinite(density_corrected(variance, density, share)).all()
    density[3], density[4] = torch.inf, -torch.inf
    assert torch.isfinite(density_corrected(variance, density, 0.05)).all()


def test_wrong_labels_are_suspected() -> None:
    rows, target = features(), labels().clone()
    wrong = torch.arange(0, 1000, 50)
    target[wrong] = (target[wrong] + 5) % 10
    kept = VarianceWeights(k=10, max_weight=10).fit(rows, target)
    capped = VarianceWeights(k=10, max_weight=10, noise="cap").fit(rows, target)
    dropped = VarianceWeights(k=10, max_weight=10, noise="drop").fit(rows, target)
    assert kept.suspects_ is None
    assert capped.suspects_ is not None
    assert capped.suspects_[wrong].mean() > 0.8
    assert capped.suspects_.mean() < 0.15
    assert (capped.weights_[capped.suspects_] == 1).all()
    assert (dropped.weights_[capped.suspects_] == 0).all()


def test_wrong_values_are_suspected() -> None:
    rows = features().double()
    values = rows[:, 0].clone()
    wrong = torch.arange(0, 1000, 50)
    values[wrong] += 40 * values.std()
    dropped = VarianceWeights(k=10, max_weight=10, noise="drop").fit(rows, values)
    assert dropped.suspects_ is not None
    assert dropped.suspects_[wrong].mean() > 0.8
    others = torch.ones(1000, dtype=torch.bool).scatter(0, wrong, False).numpy()
    assert dropped.suspects_[others].mean() < 0.02
    assert (dropped.weights_[dropped.suspects_] == 0).all()


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("copies", [1, 2])
def test_deviations_equal_brute_force(outputs: int, copies: int) -> None:
    """Sample by sample; copies of points with other labels, and no ties at the k-th distance."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(60, 3, generator=random, dtype=torch.float64).repeat(copies, 1)
    values = torch.randn(60 * copies, outputs, generator=random, dtype=torch.float64) + 100
    found = local_variance(rows, values, k=8, task="regression", agreement=True).deviation
    assert found is not None
    for sample in range(len(rows)):
        near = (rows - rows[sample]).square().sum(1).argsort()[:8]
        others = values[near[near != sample]]
        spread = others.var(0).sum() * (1 + 1 / 7)
        expected = (values[sample] - others.mean(0)).norm() / spread.sqrt()
        assert float(found[sample]) == pytest.approx(float(expected), rel=1e-8)


def test_equal_values_are_not_suspected() -> None:
    found = local_variance(
        features(), torch.full((1000,), 3.7), k=5, task="regression", agreement=True
    )
    assert found.deviation is not None
    assert float(found.deviation.max()) == 0


def test_weights_serve_samplers_and_sample_weight() -> None:
    from sklearn.linear_model import LogisticRegression

    model = VarianceWeights(k=10).fit(features(), labels())
    drawn = list(model.sampler(100, generator=torch.Generator().manual_seed(0)))
    assert len(drawn) == 100
    assert len(list(WeightedRandomSampler(model.weights_, 10))) == 10  # type: ignore[arg-type]
    LogisticRegression(max_iter=2000).fit(
        features().numpy(), labels().numpy(), sample_weight=model.weights_
    )
    with pytest.raises(InputError, match="fitted"):
        VarianceWeights().sampler()


def test_parameters() -> None:
    from sklearn.base import clone

    model = VarianceWeights(k=7, normalize="mean")
    assert repr(model) == "VarianceWeights(k=7, normalize='mean')"
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(k=9).k == 9
    assert repr(pickle.loads(pickle.dumps(model))) == repr(copy.deepcopy(model)) == repr(model)
    with pytest.raises(InputError, match="Did you mean 'max_weight'"):
        model.set_params(max_wait=2)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            {"k": 500},
            r"^k must be an integer from 2 to 300 \(the number of samples\), got 500. Lower k or pass more data.$",
        ),
        ({"max_weight": 0.5}, "max_weight must be a finite number of at least 1, got 0.5"),
        ({"scaling": "log"}, "scaling must be"),
        ({"normalize": "sum"}, "normalize must be"),
        ({"density": "magic"}, "density must be"),
        ({"noise": "ignore"}, "noise must be"),
        ({"task": "ranking"}, "task must be"),
        ({"density": "kernel", "winsorize": 0.7}, "winsorize must be"),
        ({"noise": "cap", "noise_threshold": 2}, "threshold must be"),
    ],
)
def test_bad_arguments(bad: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VarianceWeights(**{"k": 5, **bad}).fit(features()[:300], labels(300))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:Estimator VarianceWeights does not inherit")
@pytest.mark.filterwarnings("ignore:Skipping check")
def test_manners_of_scikit_learn() -> None:
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(VarianceWeights(k=2), on_fail=None)
    assert len(results) > 20
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []
