"""Local variance at points that are not samples, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mindgap.core.errors import InputError
from mindgap.data import two_moons
from mindgap.ops.variance.by_k import grid_over, variance_at
from mindgap.ops.variance.local import local_variance

K = 7


def brute_force(points: np.ndarray, features: np.ndarray, rows: np.ndarray, k: int) -> list[float]:
    found = []
    for point in points:
        near = np.argsort(((features - point) ** 2).sum(1))[:k]
        found.append(rows[near].var(0, ddof=1).sum())
    return found


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
@pytest.mark.parametrize("memory", [1, 2**20])
def test_variance_at_points_is_that_of_brute_force(task: str, memory: int) -> None:
    random = torch.Generator().manual_seed(0)
    features, points = torch.randn(60, 3, generator=random), torch.randn(25, 3, generator=random)
    labels = torch.randint(0, 4, (60,), generator=random) * 3
    values = torch.randn(60, 2, generator=random)
    target = {"classification": labels, "regression": values, "multilabel": (values > 0).float()}[
        task
    ]
    rows = np.eye(10)[labels.numpy()] if task == "classification" else target.numpy().astype(float)
    found = variance_at(points, features, target, k=K, task=task, memory=memory)  # type: ignore[arg-type]
    expected = brute_force(points.double().numpy(), features.double().numpy(), rows, K)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_at_a_sample_it_is_the_local_variance() -> None:
    inputs, labels = two_moons(200, seed=3).train
    found = variance_at(inputs, inputs, labels, k=20)
    assert torch.allclose(found, local_variance(inputs, labels, k=20).variance)
    assert found.max() > 0


def test_a_grid_covers_the_points_row_by_row() -> None:
    points = torch.tensor([[0.0, 10.0], [1.0, 14.0]])
    grid = grid_over(points, 5)
    assert grid.x[0] < 0 < 1 < grid.x[-1]
    assert grid.y[0] < 10 < 14 < grid.y[-1]
    table = grid.rows(grid.nodes[:, 0] + 100 * grid.nodes[:, 1])
    assert torch.allclose(table, grid.x[None] + 100 * grid.y[:, None])


def test_a_grid_over_one_place_has_room() -> None:
    grid = grid_over(torch.zeros(3, 2), 3)
    assert grid.x.tolist() == [-1, 0, 1]


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="points of the plane"):
        grid_over(torch.zeros(3, 3), 5)
    with pytest.raises(InputError, match="k must be an integer from 2 to 3"):
        variance_at(torch.zeros(1, 2), torch.zeros(3, 2), torch.zeros(3), k=4)
