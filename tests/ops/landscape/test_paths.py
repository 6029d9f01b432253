"""A bent path between two minima stays low where the straight line does not."""

from __future__ import annotations

import pytest
import torch

from mindgap.core import InputError, Recipe
from mindgap.nets import MLP
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.paths import bent_path, coordinates, path_losses
from mindgap.training.fit import fit


@pytest.fixture(scope="module")
def minima() -> tuple[FlatLoss, FlatLoss]:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(200, 2, generator=source)
    y = (x[:, 0] * x[:, 1] > 0).long()
    recipe = Recipe(
        model=lambda: MLP((2, 32, 2)), train=(x, y), epochs=60, learning_rate=0.02, batch_size=50
    )
    first, second = (FlatLoss(fit(recipe, seed=seed).subject()) for seed in (0, 1))
    return first, second


def test_the_bent_path_is_lower(minima: tuple[FlatLoss, FlatLoss]) -> None:
    first, second = minima
    before = first.point
    bend = bent_path(first, second.point, steps=300)
    found = path_losses(first, second.point, bend)
    assert found.bent_barrier < 0.25 * found.line_barrier
    assert found.line_barrier > 0.1
    ends = [first.subject.mean_loss(), second.subject.mean_loss()]
    for losses in (found.line, found.bent):
        assert losses[[0, -1]].tolist() == pytest.approx(ends, rel=1e-4)
    assert torch.equal(first.point, before)


def test_repeats_with_its_seed(minima: tuple[FlatLoss, FlatLoss]) -> None:
    first, second = minima
    one, same, other = (bent_path(first, second.point, steps=3, seed=s) for s in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_without_steps_it_is_the_line(minima: tuple[FlatLoss, FlatLoss]) -> None:
    first, second = minima
    found = path_losses(first, second.point, bent_path(first, second.point, steps=0), points=9)
    # With its bend in the middle, the curve visits the line's own places.
    assert torch.allclose(found.line, found.bent, atol=1e-6)


def test_the_curve_starts_and_ends_at_the_minima() -> None:
    ends = coordinates(torch.tensor([0.0, 1.0])).tolist()
    assert ends == [[0, 0], [1, 0]]


def test_other_networks_are_refused(minima: tuple[FlatLoss, FlatLoss]) -> None:
    with pytest.raises(InputError, match="same weights"):
        bent_path(minima[0], torch.zeros(3))
