"""Shared samples: equal values, near copies against brute force, and chance against copying."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mindgap.core.split import as_split
from mindgap.ops import overlap as module
from mindgap.ops.overlap import MANY, TOLERANCE, copied, overlap


def gaussian(count: int, features: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, features, generator=source, dtype=torch.float64)
    return inputs, torch.randint(0, 2, (count,), generator=source)


def brute_force(held: tuple[Tensor, Tensor], train: tuple[Tensor, Tensor]) -> Tensor:
    """Every pair, feature by feature."""
    apart = (held[0][:, None] - train[0]).abs() > TOLERANCE * train[0].std(0, correction=0)
    allowed = int(train[0].shape[1] >= MANY)
    return ((apart.sum(2) <= allowed) & (held[1][:, None] == train[1])).any(1)


@pytest.mark.parametrize("features", [1, 2, 3, MANY - 1, MANY, 40])
def test_near_copies_are_those_of_a_search_over_all_pairs(features: int) -> None:
    train, held = gaussian(500, features), gaussian(200, features, seed=1)
    held[0][:40] = train[0][:40] + 0.7 * TOLERANCE * gaussian(40, features, seed=2)[0].clamp(-1, 1)
    held[0][40:60] = train[0][40:60]
    held[0][40:60, 0] += 1
    held[1][:60] = train[1][:60]
    found = overlap(as_split(held), as_split(train))
    expected = brute_force(held, train)
    assert int(expected.sum()) >= 40
    assert torch.equal(found.near, expected)
    assert not found.equal.any()


def table(kind: str, features: int) -> Tensor:
    """Rows of one kind, of which the last two thirds are changed copies of the first."""
    inputs, _ = gaussian(900, features)
    if kind == "heavy tails":
        inputs = (2 * inputs).exp()
    elif kind == "yes or no":
        inputs[:, 1:] = (inputs[:, 1:] > 0.5).double()
    elif kind == "clusters":
        inputs = (100 * gaussian(3, features, seed=1)[0]).repeat(300, 1) + 0.01 * inputs
    elif kind == "far from zero":
        inputs += 1e7
    source = torch.Generator().manual_seed(3)
    noise = 4 * torch.rand(600, features, generator=source, dtype=torch.float64) - 2
    share = torch.rand(600, 1, generator=source, dtype=torch.float64)
    return torch.cat([inputs, inputs[:600] + share * TOLERANCE * inputs.std(0) * noise])


@pytest.mark.parametrize("features", [4, 20])
@pytest.mark.parametrize("kind", ["plain", "heavy tails", "yes or no", "clusters", "far from zero"])
def test_near_copies_of_any_table_are_those_of_a_search_over_all_pairs(
    kind: str, features: int
) -> None:
    inputs = table(kind, features)
    labels = torch.zeros(len(inputs), dtype=torch.long)
    train, held = (inputs[:900], labels[:900]), (inputs[900:], labels[900:])
    expected = brute_force(held, train)
    assert 100 < int(expected.sum()) < 550
    assert torch.equal(overlap(as_split(held), as_split(train)).near, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.float(),
        lambda x: x.half(),
        lambda x: x.bfloat16(),
        lambda x: torch.where(x == 0, -0.0, x),
    ],
    ids=["float", "half", "bfloat16", "negative zero"],
)
def test_values_are_compared_not_bits(change: Callable[[Tensor], Tensor]) -> None:
    inputs, labels = gaussian(50, 3)
    inputs[:, 0] = 0
    found = overlap(as_split((change(inputs), labels)), as_split((inputs, labels)))
    assert found.share == 1
    assert found.leaks_equal
    assert overlap(as_split((inputs, labels)), as_split((change(inputs), labels))).share == 1


def test_integers_equal_floating_point_numbers() -> None:
    inputs, labels = torch.randint(0, 255, (20, 9)), torch.arange(20)
    bytes_, floats = as_split((inputs.byte(), labels)), as_split((inputs.float(), labels))
    assert overlap(bytes_, floats).share == 1


def test_large_floating_point_numbers_keep_their_precision() -> None:
    """Seconds since 1970 would be equal in single precision."""
    times = 1.6e9 + torch.arange(20.0, dtype=torch.float64)[:, None]
    even, odd = (as_split((times[k::2], torch.zeros(10))) for k in (0, 1))
    assert overlap(even, odd).share == 0


def test_other_targets_and_shapes_are_no_copies() -> None:
    inputs, labels = gaussian(30, 20)
    train = as_split((inputs, labels))
    other = overlap(as_split((inputs + 1e-6, 1 - labels)), train)
    assert (other.share, other.near_share) == (0, 0)
    assert not other.leaks_equal
    assert not other.leaks_near
    assert overlap(as_split((inputs[:, :5], labels)), train).near_share == 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [2, 3, 10])
def test_independent_discrete_samples_are_no_leak(levels: int, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    values = torch.randint(0, levels, (600, 4), generator=source).float()
    split = as_split((values, torch.zeros(600, dtype=torch.long)))
    train, held = split.subset(torch.arange(400)), split.subset(torch.arange(400, 600))
    found = overlap(held, train)
    assert found.share > 0.02
    assert not found.leaks_equal
    assert not found.leaks_near
    copy = train.subset(torch.arange(400).flip(0))
    assert overlap(copy, train).leaks_equal


@pytest.mark.parametrize("features", [1, 2])
def test_points_in_few_dimensions_are_close_by_chance(features: int) -> None:
    train, held = gaussian(20_000, features), gaussian(2000, features, seed=1)
    found = overlap(as_split(held), as_split(train))
    assert found.near.any()
    assert not found.leaks_near


def test_chance_is_compared_with_the_training_data(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = gaussian(300, 2)
    held = as_split((inputs[:100] + 1e-7, labels[:100]))
    assert overlap(held, as_split((inputs, labels))).leaks_near
    monkeypatch.setattr(module, "ERRORS", 1000.0)  # as if no excess were ever too large
    assert not overlap(held, as_split((inputs, labels))).leaks_near


@pytest.mark.parametrize("seed", range(20))
def test_independent_draws_are_not_taken_for_copies(seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    uniform = torch.randint(0, 2 ** (seed % 12), (400,), generator=source)
    skewed = (torch.rand(2000, generator=source) ** 4 * 3000).long()
    zipf = torch.multinomial(torch.arange(1, 5000.0).pow(-1.1), 2000, True, generator=source)
    assert not any(copied(draws) for draws in (uniform, skewed, zipf))


@pytest.mark.parametrize("times", [2, 3, 10])
def test_copies_are_recognized(times: int) -> None:
    assert copied(torch.arange(100).repeat(times))
    assert copied(torch.cat([torch.arange(2000), torch.arange(400).repeat(times - 1)]))


def test_a_few_equal_samples_are_not_copies() -> None:
    assert not copied(torch.cat([torch.arange(100), torch.arange(3)]))
    assert not copied(torch.zeros(1, dtype=torch.long))
