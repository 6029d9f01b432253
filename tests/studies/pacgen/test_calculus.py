"""Derivatives of functions of two numbers against differences, and minima against ones that are known."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from mindgap.studies.pacgen.calculus import derivatives, largest_within, third_norm
from mindgap.studies.pacgen.optima import grid_minima, refined_minima


def wavy(first: Tensor, second: Tensor) -> Tensor:
    return torch.sin(first * second) + first.sigmoid() * second**2 + torch.exp(-(first**2))


def himmelblau(first: Tensor, second: Tensor) -> Tensor:
    return (first**2 + second - 11) ** 2 + (first + second**2 - 7) ** 2


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


def test_the_norm_is_the_steepest_change_of_the_hessian(points: Tensor) -> None:
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


def test_all_minima_of_himmelblau_and_no_saddle() -> None:
    axis = torch.linspace(-6, 6, 61, dtype=torch.float64)
    values = himmelblau(axis[None, :], axis[:, None])
    starts = axis[grid_minima(values)].flip(-1)
    saddle = torch.tensor([[-0.127961, -1.953715], [0.08668, 2.88425]], dtype=torch.float64)
    found = refined_minima(himmelblau, torch.cat([starts, starts + 0.05, saddle]), -6, 6, 0.5)
    known = [[3.0, 2.0], [-2.805118, 3.131312], [-3.779310, -3.283186], [3.584428, -1.848126]]
    assert sorted(found.tolist()) == [pytest.approx(point, abs=1e-5) for point in sorted(known)]


def test_minima_outside_too_far_or_absent_are_left_out() -> None:
    bowl = lambda x, y: (x - 3) ** 2 + y**2  # noqa: E731
    start = torch.tensor([[2.5, 0.1]], dtype=torch.float64)
    assert refined_minima(bowl, start, -4, 4, 1.0).tolist() == [[3, 0]]
    assert len(refined_minima(bowl, start, -2.9, 2.9, 1.0)) == 0
    assert len(refined_minima(bowl, start, -4, 4, 0.3)) == 0
    assert len(refined_minima(lambda x, y: x + y**2, start, -4, 4, 1.0)) == 0
    assert len(refined_minima(bowl, start[:0], -4, 4, 1.0)) == 0


def test_the_edge_of_a_map_and_ties_are_no_minima() -> None:
    assert len(grid_minima(torch.zeros(5, 5))) == 0
    edge = torch.ones(5, 5)
    edge[0, 2] = 0
    assert len(grid_minima(edge)) == 0
