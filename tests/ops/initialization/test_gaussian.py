"""Gaussian integrals against scipy's quadrature."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad
from torch.nn import functional as F

from mindgap.ops.initialization import gaussian
from mindgap.ops.initialization.gaussian import (
    MOST,
    gaussian_moments,
    product_moment,
    rectified_moments,
)

FUNCTIONS = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "elu": F.elu,
}


def brute(function, mean: float, std: float) -> list[float]:
    def at(x: float) -> torch.Tensor:
        return torch.tensor(x, dtype=torch.float64, requires_grad=True)

    def slope(x: float) -> float:
        point = at(x)
        return float(torch.autograd.grad(function(point), point)[0])

    def expect(of) -> float:
        density = lambda u: math.exp(-u * u / 2) / math.sqrt(2 * math.pi)  # noqa: E731
        return quad(lambda u: of(mean + std * u) * density(u), -9, 9, points=[-mean / std])[0]

    value = lambda x: float(function(at(x)).detach())  # noqa: E731
    return [expect(value), expect(lambda x: value(x) ** 2), expect(lambda x: slope(x) ** 2)]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("mean", "std"), [(0.0, 2.0), (0.7, 1.1)])
def test_moments_equal_quadrature(name: str, mean: float, std: float) -> None:
    found = gaussian_moments(
        FUNCTIONS[name], torch.tensor([mean]).double(), torch.tensor([std]).double()
    )
    assert [float(row) for row in found] == pytest.approx(
        brute(FUNCTIONS[name], mean, std), rel=1e-3, abs=1e-6
    )


@pytest.mark.parametrize("negative", [0.0, 0.2])
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 1.1), (-1.5, 0.4)])
def test_closed_form_of_relu_equals_quadrature(negative: float, mean: float, std: float) -> None:
    found = rectified_moments(torch.tensor([mean]).double(), torch.tensor([std]).double(), negative)
    leaky = lambda x: F.leaky_relu(x, negative)  # noqa: E731
    assert [float(row) for row in found] == pytest.approx(brute(leaky, mean, std), rel=1e-6)


@pytest.mark.parametrize("mean", [0.0, 0.7])
def test_many_distributions_are_interpolated_well(
    mean: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    integrated, sizes = gaussian._integrated, list[int]()
    monkeypatch.setattr(
        gaussian, "_integrated", lambda *given: sizes.append(len(given[2])) or integrated(*given)
    )
    std = torch.linspace(0.01, 5, 3 * MOST, dtype=torch.float64)
    many = gaussian_moments(torch.tanh, torch.full_like(std, mean), std)
    assert sizes == [MOST]
    for place in (0, 1000, 3 * MOST - 1):
        one = gaussian_moments(torch.tanh, torch.tensor([mean]).double(), std[place : place + 1])
        assert [float(row[place]) for row in many] == pytest.approx(
            [float(row) for row in one], rel=1e-3, abs=1e-9
        )


def test_product_moment_equals_a_double_integral() -> None:
    mean, square, common = 0.2, 1.3, 0.5
    shared, own = math.sqrt(common - mean**2), math.sqrt(square - common)
    density = lambda u: math.exp(-u * u / 2) / math.sqrt(2 * math.pi)  # noqa: E731

    def inner(w: float) -> float:
        return quad(lambda u: math.tanh(mean + shared * w + own * u) * density(u), -9, 9)[0]

    expected = quad(lambda w: inner(w) ** 2 * density(w), -9, 9)[0]
    assert product_moment(torch.tanh, mean, square, common) == pytest.approx(expected, rel=1e-6)
