"""The formula of pacGen against plain arithmetic."""

from __future__ import annotations

import math

import pytest
import torch

from mindgap.core.errors import InputError
from mindgap.ops.curvature.pacgen import pacgen_null, pacgen_parts


class TestFormula:
    def test_equals_plain_arithmetic(self) -> None:
        weights, bends, rho = [0.5, -2.0, 0.0, 0.01], [3.0, 900.0, -50.0, 0.0], 0.7
        wanted = []
        for w, h in zip(weights, bends, strict=True):
            kappa = 0.1 * abs(w) + 0.1
            root = math.sqrt(max(0.0, h + rho * math.sqrt(4) * kappa))
            wanted.append(math.log((abs(w) + kappa) * max(root, 1 / kappa)))
        found = pacgen_parts(torch.tensor(weights).double(), torch.tensor(bends).double(), rho)
        assert found.terms.tolist() == pytest.approx(wanted, rel=1e-7)
        assert found.clipped.tolist() == [False, False, True, False]
        assert found.capped.tolist() == [True, False, True, True]

    def test_null_is_the_formula_without_hessian(self) -> None:
        weights = torch.linspace(-3, 3, 13, dtype=torch.float64)
        assert torch.allclose(
            pacgen_null(weights), pacgen_parts(weights, torch.zeros(13), 0.0).terms
        )

    def test_leading_dimensions_are_broadcast(self) -> None:
        weights, bends = torch.rand(4, 3, 5).double(), torch.rand(4, 3, 5).double()
        rho = torch.rand(4, 3).double()
        found = pacgen_parts(weights, bends, rho).terms
        assert torch.equal(
            found[2, 1], pacgen_parts(weights[2, 1], bends[2, 1], float(rho[2, 1])).terms
        )

    def test_refuses_a_negative_radius(self) -> None:
        with pytest.raises(InputError, match="gamma must be a number of at least 0, got -1"):
            pacgen_parts(torch.ones(2), torch.ones(2), 0.0, gamma=-1)
