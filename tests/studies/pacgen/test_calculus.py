"""Derivatives of functions of two variables against differences."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from mindgap.studies.pacgen.calculus import derivatives, largest_within, third_norm


def wavy(first: Tensor, second: Tensor) -> Tensor:
    return torch.sin(first * second) + first.sigmoid() * second**2 + torch.exp(-(first**2))


@pytest.fixture
def points() -> Tensor:
    return torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_derivatives_are_limits_of_differences(points: Tensor) -> None:
    found, step = derivatives(wavy, points), 1e-4

    def value(shift):
        return wavy(*(points + step * torch.tensor(shift, dtype=torch.float64)).unbind(-1))

    assert torch.equal(found.value, wavy(*points.unbind(-1)))
    slope = [(value(s) - value([-k for k in s])) / (2 * step) for s in ([1, 0], [0, 1])]
    assert torch.allclose(found.slope, torch.stack(slope, -1), atol=1e-7)
    second = [
        (value(s) - 2 * found.value + value([-k for k in s])) / step**2 for s in ([1, 0], [0, 1])
    ]
    mixed = (value([1, 1]) - value([1, -1]) - value([-1, 1]) + value([-1, -1])) / (4 * step**2)
    assert torch.allclose(found.diagonal, torch.stack(second, -1), atol=1e-5)
    assert torch.allclose(found.hessian[:, 0, 1], mixed, atol=1e-5)
    assert torch.equal(found.trace, found.hessian[:, 0, 0] + found.hessian[:, 1, 1])


def test_the_norm_is_the_largest_change_of_the_hessian(points: Tensor) -> None:
    """Brute force: how fast the Hessian's operator norm changes along many directions."""
    step, best = 1e-5, torch.zeros(len(points), dtype=torch.float64)
    for angle in torch.linspace(0, math.pi, 721, dtype=torch.float64):
        move = step * torch.stack([angle.cos(), angle.sin()])
        change = derivatives(wavy, points + move).hessian - derivatives(wavy, points - move).hessian
        best = torch.maximum(best, torch.linalg.matrix_norm(change, 2) / (2 * step))
    assert torch.allclose(third_norm(wavy, points), best, rtol=1e-3)


def test_a_function_without_curvature() -> None:
    points = torch.ones(2, 2)
    assert third_norm(lambda x, y: 2 * x + y, points).tolist() == [0, 0]
    assert derivatives(lambda x, y: 2 * x + y, points).hessian.abs().sum() == 0
    assert derivatives(lambda x, y: 2 * x + 0 * y, points).slope.tolist() == [[2, 0], [2, 0]]


def test_largest_within_by_brute_force() -> None:
    rows, columns = (
        torch.linspace(-2, 2, 9, dtype=torch.float64),
        torch.linspace(0, 3, 6, dtype=torch.float64),
    )
    values = torch.randn(9, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    reach = lambda numbers: 0.3 * numbers.abs() + 0.1  # noqa: E731
    found = largest_within(values, rows, columns, reach)
    for row, column in itertools.product(range(9), range(6)):
        near = [
            float(values[i, j])
            for i, j in itertools.product(range(9), range(6))
            if abs(rows[i] - rows[row]) <= reach(rows[row])
            and abs(columns[j] - columns[column]) <= reach(columns[column])
        ]
        assert float(found[row, column]) == max(near)
