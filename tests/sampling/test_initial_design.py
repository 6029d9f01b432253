"""Starting points: as many as asked, inside, spread as their name says, and decided by the seed."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
from scipy.stats import qmc
from torch import Tensor

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.sampling.domain import Box, Domain, Product, Simplex, Where
from mindgap.sampling.initial_design import Design, initial_design, levels

KINDS = get_args(Design)
BOX = Box([-1, 0, 5], [1, 10, 5.5])


def disc(points: Tensor) -> Tensor:
    return (points**2).sum(1) <= 1


DOMAINS: dict[str, Domain] = {
    "box": BOX,
    "simplex": Simplex(3),
    "product": Product((Box(0, 1), Simplex(2))),
    "where": Where(Box([-1, -1], [1, 1]), disc),
}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS.keys())
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 7, 64, 200])
def test_as_many_as_asked_inside_and_different(domain: Domain, kind: Any, count: int) -> None:
    points = initial_design(kind, count, domain, seed=3)
    assert points.shape == (count, domain.dimension)
    assert points.dtype == torch.float64
    assert domain.contains(points).all()
    assert len(points.unique(dim=0)) == count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", [DOMAINS["box"], DOMAINS["where"]], ids=["box", "where"])
def test_the_seed_decides(domain: Domain, kind: Any) -> None:
    torch.manual_seed(1)
    one = initial_design(kind, 50, domain, seed=3)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(one, initial_design(kind, 50, domain, seed=3))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(one, initial_design(kind, 50, domain, seed=4)) == (kind == "grid")


@pytest.mark.parametrize("count", [2, 8, 9, 100])
def test_grid_of_one_dimension_is_linspace(count: int) -> None:
    points = initial_design("grid", count, Box(-2.5, 0.1))[:, 0]
    torch.testing.assert_close(points, torch.linspace(-2.5, 0.1, count, dtype=torch.float64))
    assert float(points[0]) == -2.5
    assert float(points[-1]) == 0.1


@pytest.mark.parametrize(
    ("count", "wanted"), [(1, [1, 1, 1]), (8, [2, 2, 2]), (12, [3, 2, 2]), (64, [4, 4, 4])]
)
def test_full_grid(count: int, wanted: list[int]) -> None:
    points = initial_design("grid", count, BOX)
    assert [len(column.unique()) for column in points.T] == wanted
    if min(wanted) > 1:
        assert points.amin(0).tolist() == list(BOX.low)
        assert points.amax(0).tolist() == list(BOX.high)
    else:
        assert points.tolist() == [[0.0, 5.0, 5.25]]


def test_thinned_grid_lies_on_the_next_full_one() -> None:
    full, thin = initial_design("grid", 64, BOX), initial_design("grid", 55, BOX)
    assert levels(55, 3) == [4, 4, 4]
    assert (
        torch.cdist(thin, full, compute_mode="donot_use_mm_for_euclid_dist").amin(1) < 1e-12
    ).all()
    assert torch.equal(thin[[0, -1]], full[[0, -1]])
    for column, whole in zip(thin.T, full.T, strict=True):  # no level of any axis is emptied
        assert torch.bincount(torch.searchsorted(whole.unique(), column.contiguous())).min() >= 11


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 100])
def test_levels_are_the_smallest_near_equal_ones(dimension: int) -> None:
    for count in (1, 2, 3, 9, 10, 100, 1000, 2187, 4096):
        found = levels(count, dimension)
        assert math.prod(found) >= count
        assert max(found) - min(found) <= 1
        assert found == sorted(found, reverse=True)
        if max(found) > 1:
            last = max(axis for axis in range(dimension) if found[axis] == max(found))
            smaller = [size - (axis == last) for axis, size in enumerate(found)]
            assert math.prod(smaller) < count


@pytest.mark.parametrize("count", [1, 10, 333])
def test_latin_hypercube_has_one_point_in_every_slice(count: int) -> None:
    points = BOX.to_unit(initial_design("latin-hypercube", count, BOX, seed=5))
    slices = (points * count).floor().long().sort(0).values
    assert (slices == torch.arange(count)[:, None]).all()
    if count > 100:
        assert (
            points.T.corrcoef() - torch.eye(3)
        ).abs().max() < 0.2  # the axes are shuffled independently


def test_sobol_and_hypercubes_fill_a_box_more_evenly_than_chance() -> None:
    def discrepancy(kind: Any, seed: int) -> float:
        return float(qmc.discrepancy(initial_design(kind, 128, Box.unit(3), seed=seed).numpy()))

    for seed in range(5):
        chance = discrepancy("uniform", seed)
        assert discrepancy("sobol", seed) < discrepancy("latin-hypercube", seed) < chance


def test_sobol_goes_on_until_enough_lie_inside() -> None:
    domain = DOMAINS["where"]
    few, many = (initial_design("sobol", count, domain, seed=1) for count in (20, 80))
    assert torch.equal(few, many[:20])
    whole = initial_design("sobol", 200, domain.box, seed=1)
    assert torch.equal(many, whole[disc(whole)][:80])


@pytest.mark.parametrize("kind", KINDS)
def test_a_domain_that_is_almost_empty_is_an_error(kind: Any) -> None:
    nowhere = Where(Box([0, 0], [1, 1]), lambda points: points.sum(1) > 5, limit=3000)
    with pytest.raises(
        InputError, match=r"got 0 of .* points inside .*where 4 were wanted. Tighten"
    ):
        initial_design(kind, 4, nowhere, limit=3000)


def test_bad_input_gets_a_sentence() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'sobol'"):
        initial_design("sobl", 4, BOX)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="count must be an integer"):
        initial_design("grid", 0, BOX)
    with pytest.raises(InputError, match="seed must be an integer"):
        initial_design("uniform", 3, BOX, seed=-1)
