"""Domains: membership, uniform draws with their exact moments, scaling, and what can be saved."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
import torch
from scipy.stats import beta, kstest
from torch import Tensor

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.sampling.domain import Box, Domain, Product, Simplex, Where, from_dict


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def disc(points: Tensor) -> Tensor:
    return (points**2).sum(1) <= 1


BOX = Box([-1, 0], [0.1, 10])
DOMAINS: dict[str, Domain] = {
    "box": BOX,
    "simplex": Simplex(3, total=2.0),
    "product": Product((Box(0, 10), Simplex(2), Box([1, 2], [3, 4]))),
    "where": Where(Box([-1, -1], [1, 1]), disc),
}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS.keys())
def test_what_every_domain_promises(domain: Domain) -> None:
    points = domain.uniform(2000, random())
    assert points.shape == (2000, domain.dimension)
    assert points.dtype == torch.float64
    assert domain.contains(points).all()
    low, high = domain.bounds
    assert ((points >= low) & (points <= high)).all()
    assert not domain.contains(high + 1 + points[:5].abs()).any()
    assert torch.equal(points, domain.uniform(2000, random()))
    assert not torch.equal(points, domain.uniform(2000, random(1)))
    copy = pickle.loads(pickle.dumps(domain))
    assert copy == domain
    assert hash(copy) == hash(domain)
    assert torch.equal(copy.contains(points), domain.contains(points))


@pytest.mark.parametrize("name", ["box", "simplex", "product"])
def test_domains_go_through_json(name: str) -> None:
    domain = DOMAINS[name]
    assert from_dict(json.loads(json.dumps(domain.to_dict()))) == domain


@pytest.mark.parametrize("name", ["box", "simplex", "product"])
def test_volume_is_the_share_of_the_box(name: str) -> None:
    domain = DOMAINS[name]
    points = domain.box.uniform(200_000, random())
    assert domain.volume is not None
    assert domain.volume == pytest.approx(
        float(domain.contains(points).double().mean()) * domain.box.volume, rel=0.02
    )


def test_box_ends_are_inside_to_the_last_bit() -> None:
    for seed in range(200):
        low = torch.randn(3, dtype=torch.float64, generator=random(seed)) * 10.0 ** (seed % 20 - 10)
        box = Box(low, low + torch.rand(3, dtype=torch.float64, generator=random(seed + 1)) + 1e-6)
        corners = torch.stack([torch.zeros(3), torch.ones(3), torch.rand(3)]).double()
        points = box.from_unit(corners)
        assert box.contains(points).all()
        assert points[0].tolist() == list(box.low)
        assert points[1].tolist() == list(box.high)
        outside = torch.nextafter(points[1], torch.full((3,), math.inf, dtype=torch.float64))
        assert not box.contains(outside[None]).any()


def test_unit_and_back() -> None:
    points = BOX.uniform(100, random())
    torch.testing.assert_close(BOX.from_unit(BOX.to_unit(points)), points)
    assert Box.unit(4).volume == 1
    assert Box(0, 2) == Box([0.0], torch.tensor([2]))


def test_uniform_on_a_box_is_uniform() -> None:
    points = BOX.to_unit(BOX.uniform(20_000, random()))
    assert min(kstest(column.numpy(), "uniform").pvalue for column in points.T) > 1e-3
    assert abs(float(points.T.corrcoef()[0, 1])) < 0.03


@pytest.mark.parametrize("dimension", [1, 2, 5, 30])
def test_uniform_on_a_simplex_has_dirichlet_moments(dimension: int) -> None:
    """Parts of a uniform simplex have means 1/(d+1), second moments 2/((d+1)(d+2)), products 1/((d+1)(d+2))."""
    simplex, count = Simplex(dimension, total=3.0), 100_000
    parts = simplex.parts(simplex.uniform(count, random())) / 3
    torch.testing.assert_close(parts.sum(1), torch.ones(count, dtype=torch.float64))
    both = (dimension + 1) * (dimension + 2)
    moments = parts.T @ parts / count * both
    wanted = 1 + torch.eye(dimension + 1, dtype=torch.float64)
    torch.testing.assert_close(moments, wanted, rtol=0.06, atol=0.03)
    torch.testing.assert_close(
        parts.mean(0) * (dimension + 1), wanted.new_ones(dimension + 1), rtol=0.03, atol=0
    )
    for column in (0, -1):
        assert kstest(parts[:, column].numpy(), beta(1, dimension).cdf).pvalue > 1e-3


def test_a_rule_tells_its_share_of_the_volume() -> None:
    domain = DOMAINS["where"]
    assert isinstance(domain, Where)
    found = domain.accepted(50_000, random())
    assert found.acceptance == pytest.approx(math.pi / 4, abs=0.01)
    radius = found.points.square().sum(1)
    assert kstest(radius.numpy(), "uniform").pvalue > 1e-3
    assert domain.volume is None


def test_a_rule_is_only_asked_inside() -> None:
    def rule(points: Tensor) -> Tensor:
        assert (points.abs() <= 1).all()
        return points[:, 0] > 0

    inside = Where(Box([-1, -1], [1, 1]), rule).contains([[5.0, 0.0], [0.5, 0.5], [-0.5, 0.5]])
    assert inside.tolist() == [False, True, False]
    inner = Where(Where(Box(0, 1), lambda x: x[:, 0] > 0.2), lambda x: x[:, 0] < 0.4)
    assert inner.contains([[0.1], [0.3], [0.5]]).tolist() == [False, True, False]


def test_a_rule_that_is_almost_never_true_is_an_error() -> None:
    nowhere = Where(Box(0, 1), lambda points: points[:, 0] < 1e-12, limit=10_000)
    with pytest.raises(
        InputError, match=r"0 of 10000 points inside .* where 3 were wanted. Tighten the bounds"
    ):
        nowhere.uniform(3, random())
    with pytest.raises(InputError, match="must return 3 truth values"):
        Where(Box(0, 1), lambda points: points).contains([[0.1], [0.2], [0.3]])


BAD: dict[str, tuple[Any, str]] = {
    "low above high": (lambda: Box([0, 1], [1, 0]), "low must be below high"),
    "equal ends": (lambda: Box(1, 1), "low must be below high"),
    "unequal lengths": (lambda: Box([0, 0], [1]), "got 2 and 1"),
    "infinite": (lambda: Box(0, math.inf), "Bound every coordinate"),
    "empty": (lambda: Box([], []), "one finite number per coordinate"),
    "words": (lambda: Box("low", "high"), "low must be a sequence of numbers"),  # type: ignore[arg-type]
    "no dimension": (lambda: Simplex(0), "size must be an integer of at least 1"),
    "no total": (lambda: Simplex(2, total=0.0), "above 0"),
    "no factors": (lambda: Product(()), "one domain or more"),
    "wrong dimension": (lambda: BOX.contains([[1.0]]), r"\(points, 2\)"),
    "count": (lambda: BOX.uniform(0, random()), "count must be an integer"),
    "a rule saved": (lambda: DOMAINS["where"].to_dict(), "Pass the domain again"),
    "a product with a rule saved": (
        lambda: Product((DOMAINS["where"],)).to_dict(),
        "Pass the domain again",
    ),
    "missing field": (
        lambda: from_dict({"kind": "box", "low": [0]}),
        "the fields that to_dict writes",
    ),
    "unknown field": (
        lambda: from_dict({"kind": "simplex", "size": 2, "color": 1}),
        "got size, color",
    ),
}


@pytest.mark.parametrize(("make", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_gets_a_sentence(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_unknown_kind_gets_a_sentence() -> None:
    with pytest.raises(UnknownNameError, match="kind must be one of the known names"):
        from_dict({"kind": "sphere"})
