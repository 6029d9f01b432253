"""The weighted mixture against one step written out in loops, against scikit-learn, and against its promises."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from torch import Tensor

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.ops.mixture.covariance import Diagonal, Full
from mindgap.ops.mixture.fit import choose_mixture, fit_mixture, k_means_plus_plus, lloyd
from mindgap.ops.mixture.model import Mixture
from mindgap.ops.mixture.points import spacing
from mindgap.ops.rejection import accept

KINDS = ("full", "diagonal")


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def clouds(count: int, dimension: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three clouds far from zero in unequal units, and integer weights of which some are zero."""
    generator = random(seed)
    owner = torch.randint(3, (count,), generator=generator)
    centers = 2 * torch.randn(3, dimension, dtype=torch.float64, generator=generator)
    points = centers[owner] + torch.randn(
        count, dimension, dtype=torch.float64, generator=generator
    )
    units = 10.0 ** torch.arange(dimension).double()
    return 100 + points * units, torch.randint(5, (count,), generator=generator)


def beginning(points: Tensor, components: int, kind: str) -> Mixture:
    spread = points.T.cov().reshape(points.shape[1], -1)
    if kind == "diagonal":
        spread = spread.diagonal().diag()
    weights = torch.arange(1, components + 1).double()
    return Mixture(weights / weights.sum(), points[:components], spread.repeat(components, 1, 1))


def one_step(
    points: Tensor, weights: Tensor, start: Mixture, kind: str
) -> tuple[Any, Any, Any, float]:
    """A step of expectation-maximization by loops over points and components, as in a textbook."""
    x, w, size = points.numpy(), (weights / weights.sum()).numpy(), start.components
    joint = np.zeros((len(x), size))
    for c in range(size):
        normal = multivariate_normal(start.means[c].numpy(), start.covariances[c].numpy())
        for i in range(len(x)):
            joint[i, c] = float(start.weights[c]) * normal.pdf(x[i])
    likelihood = sum(w[i] * math.log(joint[i].sum()) for i in range(len(x)))
    share = joint / joint.sum(1, keepdims=True)
    shares, means, covariances = [], [], []
    for c in range(size):
        total = sum(w[i] * share[i, c] for i in range(len(x)))
        mean = sum(w[i] * share[i, c] * x[i] for i in range(len(x))) / total
        spread = (
            sum(w[i] * share[i, c] * np.outer(x[i] - mean, x[i] - mean) for i in range(len(x)))
            / total
        )
        shares.append(total), means.append(mean)
        covariances.append(np.diag(np.diag(spread)) if kind == "diagonal" else spread)
    return np.array(shares), np.array(means), np.array(covariances), likelihood


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [1, 3])
def test_one_step_is_the_textbook_step(kind: Any, dimension: int) -> None:
    points, _ = clouds(60, dimension)
    weights = torch.rand(60, dtype=torch.float64, generator=random(1))
    start = beginning(points, 3, kind)
    shares, means, covariances, likelihood = one_step(points, weights, start, kind)
    found = fit_mixture(
        points, weights, covariance=kind, floor=0, max_iterations=1, tolerance=0, start=start
    )
    np.testing.assert_allclose(found.weights, shares, rtol=1e-11)
    np.testing.assert_allclose(found.means, means, rtol=1e-11)
    scale = points.std(0).outer(points.std(0)).numpy()
    np.testing.assert_allclose(
        found.covariances.numpy() / scale, covariances / scale, rtol=1e-10, atol=1e-12
    )
    assert found.history[0] == pytest.approx(likelihood, rel=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_weights_are_copies_as_in_scikit_learn(kind: Any, dimension: int) -> None:
    points, weights = clouds(300, dimension, seed=dimension)
    copies, start, steps = (
        points.repeat_interleave(weights, dim=0).numpy(),
        beginning(points, 3, kind),
        15,
    )
    precision = np.linalg.inv(start.covariances.numpy())
    reference = GaussianMixture(
        3,
        covariance_type="full" if kind == "full" else "diag",
        reg_covar=0.0,
        tol=0.0,
        max_iter=steps,
        weights_init=start.weights.numpy(),
        means_init=start.means.numpy(),
        precisions_init=precision if kind == "full" else precision.diagonal(axis1=1, axis2=2),
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # it says that it did not converge, which was not asked of it
        reference.fit(copies)
    found = fit_mixture(
        points, weights, covariance=kind, floor=0, max_iterations=steps, tolerance=0, start=start
    )
    assert found.iterations == steps
    np.testing.assert_allclose(found.weights, reference.weights_, rtol=1e-8)
    np.testing.assert_allclose(found.means, reference.means_, rtol=1e-8)
    wanted = (
        reference.covariances_
        if kind == "full"
        else np.stack([np.diag(row) for row in reference.covariances_])
    )
    scale = copies.std(0)[:, None] * copies.std(0)
    np.testing.assert_allclose(
        found.covariances.numpy() / scale, wanted / scale, rtol=1e-8, atol=1e-12
    )
    np.testing.assert_allclose(
        found.log_density(points), reference.score_samples(points.numpy()), rtol=1e-8
    )
    assert found.log_likelihood == pytest.approx(reference.score(copies), rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_equal_weights_whatever_the_start(kind: Any) -> None:
    points, weights = clouds(80, 2)
    by_weight = fit_mixture(points[weights > 0], weights[weights > 0], covariance=kind, seed=3)
    by_copy = fit_mixture(points.repeat_interleave(weights, dim=0), covariance=kind, seed=3)
    torch.testing.assert_close(by_copy.means, by_weight.means)
    assert by_copy.floor == pytest.approx(by_weight.floor)
    assert by_copy.size != by_weight.size  # the effective number counts rows


@pytest.mark.parametrize("kind", KINDS)
def test_likelihood_never_falls(kind: Any) -> None:
    raised = 0
    for seed in range(60):
        generator = random(seed)
        count, dimension = 5 + seed, 1 + seed % 4
        points = torch.randn(count, dimension, dtype=torch.float64, generator=generator).exp()
        points[: count // 4] = points[0].clone()  # copies
        weights = torch.rand(count, dtype=torch.float64, generator=generator) ** 8
        for floor in (None, 0.3):
            found = fit_mixture(
                points,
                weights,
                4,
                covariance=kind,
                floor=floor,
                tolerance=0,
                max_iterations=100,
                seed=seed,
                restarts=2,
            )
            gains = np.diff(found.history)
            assert gains.min(initial=0) > -1e-11
            unit = points.unique(dim=0).std(0, correction=0)
            least = torch.linalg.eigvalsh(found.covariances / unit.outer(unit)).amin()
            assert least > found.floor**2 * (1 - 1e-9)
            raised += int(least < found.floor**2 * (1 + 1e-9))
            assert found.log_likelihood == pytest.approx(
                float(found.log_density(points) @ weights / weights.sum()), rel=1e-9, abs=1e-9
            )
    assert raised > 30  # the floor was at work


@pytest.mark.parametrize("shape", [Full(), Diagonal()], ids=KINDS)
def test_raised_covariance_is_the_best_one_above_the_floor(shape: Any) -> None:
    generator, floor, dimension = random(0), 0.5, 3
    factor = torch.randn(dimension, dimension, dtype=torch.float64, generator=generator)
    scatter = shape.matrix(shape.of_matrix(factor @ factor.T * 0.3))
    assert torch.linalg.eigvalsh(scatter)[0] < floor

    def value(matrix: Tensor) -> Tensor:
        return -torch.logdet(matrix) - torch.linalg.solve(matrix, scatter).diagonal(
            dim1=-2, dim2=-1
        ).sum(-1)

    best = value(shape.matrix(shape.raised(shape.of_matrix(scatter), floor)))
    others = torch.randn(5000, dimension, dimension, dtype=torch.float64, generator=generator)
    others = others @ others.mT * torch.rand(5000, 1, 1, dtype=torch.float64, generator=generator)
    near = shape.matrix(shape.raised(shape.of_matrix(scatter), floor))
    others = torch.cat([others, near + 0.02 * (others - others.mean(0))])
    values, vectors = torch.linalg.eigh(0.5 * (others + others.mT))
    others = (vectors * values.clamp_min(floor).unsqueeze(-2)) @ vectors.mT
    others = shape.matrix(shape.of_matrix(others))
    assert value(others).max() <= best + 1e-12
    added = scatter + floor * torch.eye(dimension, dtype=torch.float64)
    assert value(added) < best - 1e-3


def test_weightless_points_have_no_part_in_the_likelihood() -> None:
    points, weights = clouds(90, 2)
    start = beginning(points, 3, "full")
    one = fit_mixture(points, weights, floor=0, start=start)
    two = fit_mixture(points[weights > 0], weights[weights > 0], floor=0, start=start)
    torch.testing.assert_close(one.covariances, two.covariances)
    faint = torch.where(weights > 0, weights.double(), 1e-30)
    exact, near = (
        fit_mixture(points, each, restarts=30, tolerance=1e-10) for each in (weights, faint)
    )
    assert exact.floor == pytest.approx(near.floor)
    assert exact.log_likelihood == pytest.approx(near.log_likelihood, rel=1e-6)


def test_units_play_no_part() -> None:
    points, weights = clouds(90, 2)
    unit, shift = torch.tensor([1e-3, 7.0]), torch.tensor([5.0, -2.0])
    one, two = fit_mixture(points, weights), fit_mixture(points * unit + shift, 1e5 * weights)
    torch.testing.assert_close(one.means * unit + shift, two.means, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(
        one.log_likelihood - math.log(7e-3), two.log_likelihood, rtol=1e-7, atol=1e-7
    )


def test_few_points_do_not_collapse() -> None:
    points = torch.linspace(-1, 1, 8, dtype=torch.float64)[:, None]
    weights = torch.tensor([0, 0, 1e-9, 0, 0, 1.0, 0, 0])
    found = fit_mixture(points, weights, 2)
    heavy = found.weights.argmax()
    assert float(found.means[heavy]) == pytest.approx(float(points[5]))
    assert float(found.covariances[heavy].sqrt()) == pytest.approx(
        (2 / 7) / 2
    )  # half-way to the next point


def test_spacing_is_the_weighted_median_to_the_nearest_other_point() -> None:
    points = torch.randn(700, 2, dtype=torch.float64, generator=random(0))
    distance = torch.cdist(points, points).fill_diagonal_(torch.inf).amin(1)
    assert spacing(points, torch.ones(700)) == pytest.approx(float(distance.median()), rel=0.02)
    close = (distance < 0.05).double()
    order = distance[close > 0].median()
    assert spacing(points, close) == pytest.approx(float(order), rel=0.05)


def test_clusters_are_found_and_restarts_help() -> None:
    generator = random(5)
    centers = torch.randn(6, 2, dtype=torch.float64, generator=generator) * 10
    points = centers[torch.arange(300) % 6] + 0.3 * torch.randn(
        300, 2, dtype=torch.float64, generator=generator
    )
    found = fit_mixture(points, components=6, restarts=20)
    assert torch.cdist(centers, found.means).amin(1).max() < 0.3
    assert found.converged
    single = [
        fit_mixture(points, components=6, restarts=1, seed=seed).log_likelihood for seed in range(6)
    ]
    assert found.log_likelihood >= max(single) - 1e-3
    assert choose_mixture(points, candidates=[2, 6, 9], restarts=20).components == 6


def test_seeds_decide() -> None:
    points, weights = clouds(60, 2)
    one, two = fit_mixture(points, weights, seed=4), fit_mixture(points, weights, seed=4)
    assert torch.equal(one.means, two.means)
    assert torch.equal(one.sample(5, random(1)), two.sample(5, random(1)))
    assert not torch.equal(one.sample(5, random(1)), one.sample(5, random(2)))
    kept = pickle.loads(pickle.dumps(one))
    assert torch.equal(kept.log_density(points), one.log_density(points))


def test_starts_are_different_points_of_weight() -> None:
    points, weights = clouds(30, 2)
    weight = weights.double()
    chosen = k_means_plus_plus(points, weight, 5, 200, random(0))
    match = (chosen[:, :, None] == points).all(-1)
    assert (match.any(-1)).all()
    assert (match.any(1).sum(-1) == 5).all()
    assert not match[..., weight == 0].any()
    first = match[:, 0].double().mean(0)
    assert (first - weight / weight.sum()).abs().max() < 0.08


def test_lloyd_never_raises_the_squared_distance() -> None:
    points, weights = clouds(100, 2)
    centers = k_means_plus_plus(points, weights.double(), 4, 10, random(0))
    cost = [
        torch.cdist(points.expand(10, -1, -1), lloyd(points, weights.double(), centers, n))
        for n in range(6)
    ]
    total = torch.stack([distance.amin(-1).square() @ weights.double() for distance in cost])
    assert (total.diff(dim=0) <= 1e-6 * total[0]).all()
    assert (total[-1] < total[0]).all()


def test_criterion_is_schwarz_with_the_effective_size() -> None:
    points, weights = clouds(60, 3)
    found = fit_mixture(points, weights, 2)
    size = float(weights.sum() ** 2 / (weights**2).sum())
    assert found.parameters == 1 + 2 * (3 + 6)
    assert found.bic == pytest.approx(19 * math.log(size) - 2 * size * found.log_likelihood)
    assert fit_mixture(points, weights, 2, covariance="diagonal").parameters == 1 + 2 * (3 + 3)
    reference = GaussianMixture(2, random_state=0, reg_covar=0.0, tol=1e-12, max_iter=2000).fit(
        points.numpy()
    )
    start = Mixture(
        *map(torch.from_numpy, (reference.weights_, reference.means_, reference.covariances_))
    )
    plain = fit_mixture(points, start=start, floor=0)
    assert plain.bic == pytest.approx(reference.bic(points.numpy()), rel=1e-8)


def test_draws_have_the_moments_of_the_mixture() -> None:
    points, weights = clouds(200, 2)
    found = fit_mixture(points, weights)
    drawn = found.sample(200_000, random(0))
    mean = found.weights @ found.means
    spread = found.covariances + (away := found.means - mean)[:, :, None] * away[:, None, :]
    spread = (found.weights[:, None, None] * spread).sum(0)
    error = (drawn.mean(0) - mean) / (spread.diagonal() / 200_000).sqrt()
    assert error.abs().max() < 4
    unit = spread.diagonal().sqrt()
    torch.testing.assert_close(
        drawn.T.cov() / unit.outer(unit), spread / unit.outer(unit), rtol=0.02, atol=0.02
    )


def test_draws_inside_are_those_of_the_truncated_normal() -> None:
    from scipy.stats import kstest, norm, truncnorm

    mixture = Mixture(torch.ones(1), torch.tensor([[1.0]]), torch.tensor([[[4.0]]]))
    found = mixture.sample_inside(20_000, lambda x: (x[:, 0] > 2) & (x[:, 0] < 5), random(0))
    assert kstest(found.points[:, 0].numpy(), truncnorm(0.5, 2, loc=1, scale=2).cdf).pvalue > 1e-3
    assert found.acceptance == pytest.approx(norm.cdf(2) - norm.cdf(0.5), abs=0.01)
    assert found.points.shape == (20_000, 1)


def test_a_domain_that_is_never_hit_is_an_error() -> None:
    mixture = Mixture(torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1, 1))
    drawn = []

    def far(points: Tensor) -> Tensor:
        drawn.append(len(points))
        return points[:, 0] > 50

    with pytest.raises(
        InputError, match=r"got 0 of 5000 points inside \(acceptance 0\) where 10 were wanted. Fit"
    ):
        mixture.sample_inside(10, far, random(0), limit=5000)
    assert sum(drawn) == 5000
    with pytest.raises(InputError, match="truth values"):
        mixture.sample_inside(10, lambda x: x > 0, random(0))
    tenth = accept(
        lambda size: torch.rand(size, 1, generator=random(size)), lambda x: x[:, 0] < 0.1, 50
    )
    assert len(tenth.points) == 50
    assert tenth.proposed < 2000


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "one row": (torch.zeros(5), {}, "Give every point a row"),
    "no points": (torch.zeros(0, 2), {}, "at least one point"),
    "not finite": (torch.tensor([[math.nan], [1.0]]), {}, "1 of 2"),
    "words": ([["a"], ["b"]], {}, "must be numbers"),
    "too many components": (
        torch.eye(2),
        {"components": 3},
        "from 1 to 2 .*distinct points of positive weight",
    ),
    "copies": (torch.zeros(9, 1), {"components": 2}, "from 1 to 1"),
    "one point": (torch.zeros(9, 1), {"components": 1}, "at least 2 distinct points"),
    "wrong number of weights": (torch.eye(3), {"weights": [1, 2]}, "each of 3 points"),
    "negative weights": (torch.eye(3), {"weights": [1, 2, -1]}, "at least 0"),
    "all weights zero": (torch.eye(3), {"weights": [0, 0, 0]}, "only zeros. Pass None"),
    "negative floor": (torch.eye(3), {"floor": -1.0}, "floor must be a number"),
    "singular": (torch.eye(3), {"floor": 0}, "singular covariance. Leave floor"),
    "no steps": (torch.eye(3), {"max_iterations": 0}, "max_iterations"),
    "another dimension": (
        torch.eye(3),
        {"start": Mixture(torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1, 1))},
        "3 features",
    ),
}


@pytest.mark.parametrize(("points", "options", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_gets_a_sentence(points: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fit_mixture(points, **options)


def test_bad_names_and_mixtures_get_a_sentence() -> None:
    with pytest.raises(UnknownNameError, match="'full'"):
        fit_mixture(torch.eye(3), covariance="ful")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one number"):
        choose_mixture(torch.eye(3), candidates=[])
    with pytest.raises(InputError, match="must have shapes"):
        Mixture(torch.ones(2) / 2, torch.zeros(2, 1), torch.ones(2, 1))
    with pytest.raises(InputError, match="sum to 1"):
        Mixture(torch.ones(2), torch.zeros(2, 1), torch.ones(2, 1, 1))
    with pytest.raises(InputError, match=r"\(points, 1\)"):
        Mixture(torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1, 1)).log_density(
            torch.zeros(3, 2)
        )
