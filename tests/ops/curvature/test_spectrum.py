"""Eigenpairs, traces and densities against dense matrices."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from cases import CASES
from hypothesis import given, settings, strategies as st
from ops.curvature.dense import brute_hessian, operator_of, symmetric

from mindgap.ops.curvature import spectrum
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import density, top_eigenpairs, trace


@pytest.fixture
def _never_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectrum, "DENSE", 0)


class TestEigenpairs:
    @pytest.mark.usefixtures("_never_dense")
    @pytest.mark.parametrize("case", CASES)
    def test_of_every_network(self, case: str) -> None:
        subject = CASES[case](torch.float64)
        matrix, whole = hessian_products(FlatLoss(subject)), brute_hessian(subject)
        found = top_eigenpairs(matrix, 3, smallest=2, tolerance=1e-9)
        expected = torch.linalg.eigvalsh(whole)
        assert found.converged
        assert torch.allclose(found.values[:3], expected.flip(0)[:3], atol=1e-8)
        assert torch.allclose(found.values[3:].flip(0), expected[:2], atol=1e-8)
        rest = (found.vectors @ whole - found.values[:, None] * found.vectors).norm(dim=1)
        assert torch.allclose(rest, found.residuals, atol=1e-10)
        assert torch.allclose(found.vectors @ found.vectors.T, torch.eye(5).double(), atol=1e-9)

    @settings(max_examples=25, deadline=None)
    @given(size=st.integers(4, 60), count=st.integers(1, 4), seed=st.integers(0, 99))
    def test_of_any_matrix(self, size: int, count: int, seed: int) -> None:
        matrix = symmetric(size, seed)
        with mock.patch.object(spectrum, "DENSE", 0):
            found = top_eigenpairs(operator_of(matrix), count, smallest=1, tolerance=1e-10)
        expected = torch.linalg.eigvalsh(matrix).flip(0)
        if size <= count + 1:
            assert torch.allclose(found.values, expected, atol=1e-9)
        else:
            assert torch.allclose(found.values[:count], expected[:count], atol=1e-8)
            assert float(found.values[-1]) == pytest.approx(float(expected[-1]), abs=1e-8)

    @pytest.mark.usefixtures("_never_dense")
    def test_repeated_eigenvalues_are_found_as_often(self) -> None:
        values = torch.tensor([5.0] * 3 + [2.0] * 3 + [0.0] * 100).double()
        turn = torch.linalg.qr(
            torch.randn(106, 106, generator=torch.Generator().manual_seed(0)).double()
        )[0]
        found = top_eigenpairs(operator_of(turn * values @ turn.T), 5)
        assert torch.allclose(
            found.values, torch.tensor([5.0, 5.0, 5.0, 2.0, 2.0]).double(), atol=1e-6
        )

    @pytest.mark.usefixtures("_never_dense")
    def test_zero_matrix(self) -> None:
        found = top_eigenpairs(operator_of(torch.zeros(40, 40).double()), 2, smallest=1)
        assert found.converged
        assert not found.values.any()

    def test_too_few_products_are_told(self) -> None:
        found = top_eigenpairs(operator_of(symmetric(300, 0)), 2, tolerance=1e-12, most=8)
        assert not found.converged
        assert found.products == 8
        assert (found.residuals > 0).all()

    def test_residual_bounds_the_error(self) -> None:
        matrix = symmetric(300, 3)
        found = top_eigenpairs(operator_of(matrix), 2, smallest=1, most=30)
        expected = torch.linalg.eigvalsh(matrix)
        for value, residual in zip(found.values, found.residuals, strict=True):
            assert float((expected - value).abs().min()) <= float(residual) + 1e-12


class TestTrace:
    def test_small_matrices_are_exact(self) -> None:
        matrix = symmetric(30, 0)
        found = trace(operator_of(matrix))
        assert found.value == pytest.approx(float(matrix.trace()), rel=1e-12)
        assert (found.standard_error, found.products) == (0.0, 30)

    @pytest.mark.usefixtures("_never_dense")
    @pytest.mark.parametrize("method", ["hutchinson", "hutch++", "known"])
    def test_unbiased_with_an_honest_error(self, method: str) -> None:
        matrix = decaying(300)
        operator, truth = operator_of(matrix), float(matrix.trace())
        known = top_eigenpairs(operator, 10, seed=7) if method == "known" else None
        name = "hutch++" if method == "known" else method
        draws = [trace(operator, 30, method=name, known=known, seed=seed) for seed in range(200)]
        scores = [(draw.value - truth) / draw.standard_error for draw in draws]
        assert abs(sum(scores) / len(scores)) < 0.35
        inside = sum(abs(score) < 2.3 for score in scores) / len(scores)  # Student's t
        assert inside > 0.9
        assert {draw.products for draw in draws} == {30}

    @pytest.mark.usefixtures("_never_dense")
    @pytest.mark.parametrize("products", [2, 3, 4])
    def test_few_products_have_an_error_too(self, products: int) -> None:
        assert trace(operator_of(decaying(300)), products).standard_error > 0

    @pytest.mark.usefixtures("_never_dense")
    def test_the_range_of_the_matrix_pays(self) -> None:
        operator = operator_of(decaying(300))
        plain, better = (
            trace(operator, 60, method=name).standard_error for name in ("hutchinson", "hutch++")
        )
        assert better < plain / 3


class TestDensity:
    @pytest.mark.usefixtures("_never_dense")
    def test_the_search_for_eigenpairs_sees_the_same_moments(self) -> None:
        matrix = symmetric(80, 1)
        pairs = top_eigenpairs(operator_of(matrix), 3, most=15, tolerance=1e-12, seed=4)
        start = rows = pairs.space[:3]
        for order in range(10):  # five products per initial vector
            seen = float((start * rows).sum(1).mean())
            assert pairs.density.moment(order) == pytest.approx(seen, rel=1e-9, abs=1e-9)
            rows = rows @ matrix
        assert torch.allclose(pairs.density.weights.sum(1), torch.ones(3).double())

    @pytest.mark.usefixtures("_never_dense")
    def test_the_search_is_unbiased_for_the_trace(self) -> None:
        matrix = symmetric(80, 1)
        found = [
            top_eigenpairs(operator_of(matrix), 2, most=4, seed=seed).density.moment(1)
            for seed in range(200)
        ]
        spread = math.sqrt(2 * float(matrix.square().sum()) / 400) / 80
        assert abs(sum(found) / 200 - float(matrix.trace()) / 80) < 4 * spread

    @pytest.mark.usefixtures("_never_dense")
    def test_moments_are_what_the_probes_see(self) -> None:
        matrix = symmetric(80, 1)
        found = density(operator_of(matrix), probes=3, steps=5, seed=4)
        start = spectrum._signs(3, 80, torch.Generator().manual_seed(4))
        rows = start
        for order in range(10):  # Gauss quadrature is exact up to degree 2 · 5 − 1
            seen = float((start * rows).sum(1).mean()) / 80
            assert found.moment(order) == pytest.approx(seen, rel=1e-9, abs=1e-9)
            rows = rows @ matrix
        assert torch.allclose(found.weights.sum(1), torch.ones(3).double())

    @pytest.mark.usefixtures("_never_dense")
    def test_moments_converge_to_the_traces(self) -> None:
        matrix = symmetric(80, 1)
        found = density(operator_of(matrix), probes=400, steps=4)
        for order in (1, 2, 3):
            power = torch.linalg.matrix_power(matrix, order)
            spread = math.sqrt(2 * float(power.square().sum()) / 400) / 80
            assert abs(found.moment(order) - float(power.trace()) / 80) < 4 * spread

    @pytest.mark.usefixtures("_never_dense")
    def test_a_closed_space_keeps_its_weight(self) -> None:
        matrix = torch.diag(torch.tensor([3.0] * 4 + [0.0] * 36).double())
        found = density(operator_of(matrix), probes=2, steps=10)
        assert found.moment(0) == pytest.approx(1)
        assert found.moment(1) == pytest.approx(0.3)
        assert found.moment(2) == pytest.approx(0.9)

    @pytest.mark.parametrize("limit", [0, 256])
    def test_the_curve_is_a_density(self, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spectrum, "DENSE", limit)
        found = density(operator_of(symmetric(100, 2)))
        places, heights = found.curve(points=2000)
        assert float(torch.trapezoid(heights, places)) == pytest.approx(1, abs=1e-3)
        mean = float(torch.trapezoid(heights * places, places))
        assert mean == pytest.approx(found.moment(1), abs=1e-3)
        assert (heights >= 0).all()

    def test_a_small_matrix_is_exact(self) -> None:
        matrix = symmetric(50, 3)
        found = density(operator_of(matrix))
        assert torch.allclose(found.nodes[0], torch.linalg.eigvalsh(matrix))

    def test_equal_eigenvalues_have_a_curve(self) -> None:
        places, heights = density(operator_of(torch.eye(5).double())).curve()
        assert torch.isfinite(heights).all()
        assert float(torch.trapezoid(heights, places)) == pytest.approx(1, abs=1e-2)


def decaying(size: int) -> torch.Tensor:
    """A few large eigenvalues and many small ones, as the Hessian of a network has."""
    source = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(size, size, generator=source, dtype=torch.float64))[0]
    values = 10.0 / torch.arange(1, size + 1).double() ** 1.5
    return turn * values @ turn.T
