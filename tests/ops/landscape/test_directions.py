"""Directions have the norms that they are normalized to; the plane of a run is the best one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mindgap.core import InputError
from mindgap.ops.landscape.directions import random_directions, trajectory_plane


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 4))
    return {name: p.detach().double() for name, p in model.named_parameters()}


def cut(row: torch.Tensor, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    parts = row.split([w.numel() for w in like.values()])
    return {name: part.view(w.shape) for (name, w), part in zip(like.items(), parts, strict=True)}


def test_filters_get_the_norm_of_the_weights() -> None:
    own = weights()
    for row in random_directions(own):
        for name, part in cut(row, own).items():
            if part.ndim < 2:
                assert not part.any()
                continue
            for mine, theirs in zip(part, own[name], strict=True):
                assert torch.allclose(mine.norm(), theirs.norm())


def test_layers_get_the_norm_of_the_weights() -> None:
    own = weights()
    for row in random_directions(own, normalize="layer"):
        parts = cut(row, own)
        assert torch.allclose(parts["0.weight"].norm(), own["0.weight"].norm())
        filters = own["0.weight"].flatten(1).norm(dim=1)
        assert not torch.allclose(parts["0.weight"].flatten(1).norm(dim=1), filters)
        assert not parts["1.weight"].any()


def test_without_normalization_all_weights_move_by_one() -> None:
    own = weights()
    rows = random_directions(own, normalize="none")
    assert torch.allclose(rows.norm(dim=1), torch.ones(2, dtype=torch.float64))
    assert all(part.all() for part in cut(rows[0], own).values())


def test_seeds_differ_and_repeat() -> None:
    one, same, other = (random_directions(weights(), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])


def test_vectors_alone_have_no_filters() -> None:
    with pytest.raises(InputError, match="none"):
        random_directions({"bias": torch.ones(3)})


def test_the_plane_of_a_run_is_that_of_numpy() -> None:
    path = torch.randn(6, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = trajectory_plane(path)
    moved = (path - path[-1]).numpy()
    _, singular, rows = np.linalg.svd(moved, full_matrices=False)
    ours = found.directions.numpy()
    assert np.allclose(np.abs(np.sum(ours * rows[:2], 1)), 1)
    assert np.allclose(found.explained, singular[:2] ** 2 / np.sum(singular**2))
    assert np.allclose(found.coordinates.numpy(), moved @ ours.T)
    assert not found.coordinates[-1].abs().max() > 1e-12


@pytest.mark.parametrize("path", [torch.ones(2, 5), torch.arange(4.0)[:, None] * torch.ones(5)])
def test_a_run_must_span_a_plane(path: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"[Rr]ecord"):
        trajectory_plane(path)
