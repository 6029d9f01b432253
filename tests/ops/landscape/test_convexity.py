"""The convex envelope against a linear program per point; curvature against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog
from torch import Tensor

from mindgap.core import InputError
from mindgap.ops.landscape.convexity import convex_envelope, curvature_ratios, share_above_envelope


def by_linear_programs(x: Tensor, y: Tensor, z: Tensor) -> np.ndarray:
    """The lowest mean height of weighted grid points whose mean place is the point."""
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    places = np.stack([columns.flatten(), rows.flatten(), np.ones(z.numel())])
    found = [
        linprog(z.flatten().numpy(), A_eq=places, b_eq=places[:, k]).fun for k in range(z.numel())
    ]
    return np.array(found).reshape(z.shape)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 5), st.integers(3, 5))
def test_envelope_equals_linear_programs(seed: int, width: int, height: int) -> None:
    source = torch.Generator().manual_seed(seed)
    z = torch.randn(height, width, generator=source, dtype=torch.float64)
    x, y = torch.linspace(-1, 2, width).double(), torch.linspace(0, 5, height).double()
    found = convex_envelope(x, y, z)
    assert np.allclose(found.numpy(), by_linear_programs(x, y, z), atol=1e-7)
    assert (found <= z).all()


def test_convex_surfaces_are_their_own_envelope() -> None:
    axis = torch.linspace(-1, 1, 9, dtype=torch.float64)
    bowl = (axis[:, None] + 0.3 * axis) ** 2 + axis.abs()
    assert share_above_envelope(axis, axis, bowl) == 0
    assert torch.allclose(convex_envelope(axis, axis, bowl), bowl, atol=1e-9)
    assert share_above_envelope(axis, axis, torch.zeros(9, 9)) == 0
    bowl[4, 4] += 1  # one point above all others that it lies between
    assert share_above_envelope(axis, axis, bowl) == pytest.approx(1 / 81)


def test_curvature_of_quadratics_is_exact() -> None:
    x, y = torch.linspace(-1, 1, 5).double(), torch.linspace(-2, 1, 4).double()
    matrix = torch.tensor([[3.0, 1.0], [1.0, -2.0]], dtype=torch.float64)
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    places = torch.stack([columns, rows], -1)
    z = ((places @ matrix) * places).sum(-1) / 2
    lines = torch.tensor([[0.5, 0], [0, 1], [0.5, 1], [0.5, -1]], dtype=torch.float64)
    curved = ((lines @ matrix) * lines).sum(1) / lines.square().sum(1)
    found = curvature_ratios(x, y, z)
    assert found.shape == (2, 3)
    assert torch.allclose(found, (-curved.min() / curved.abs().max()).expand(2, 3))
    assert not curvature_ratios(x, y, -z + 3 * (places**2).sum(-1)).any()
    assert not curvature_ratios(x, y, torch.zeros(4, 5)).any()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 30.0))
def test_no_convex_surface_is_accused(seed: int, steep: float) -> None:
    """Also one that grows by many orders of magnitude from point to point."""
    source = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, 7, dtype=torch.float64)
    slopes = steep * torch.randn(5, 2, generator=source, dtype=torch.float64)
    planes = slopes[:, :1, None] * axis + slopes[:, 1:, None] * axis[:, None]
    assert curvature_ratios(axis, axis, planes.exp().sum(0)).max() < 1e-9


def test_infinite_heights_are_refused() -> None:
    z = torch.zeros(3, 3)
    z[1, 1] = torch.inf
    with pytest.raises(InputError, match="finite"):
        share_above_envelope(torch.arange(3.0), torch.arange(3.0), z)
