"""Local minima of known functions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mindgap.studies.pacgen.optima import grid_minima, refined_minima


def himmelblau(first: Tensor, second: Tensor) -> Tensor:
    return (first**2 + second - 11) ** 2 + (first + second**2 - 7) ** 2


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
