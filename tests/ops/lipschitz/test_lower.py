"""The search for steep places against exhaustive search and the certified bound."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from mindgap.core import InputError
from mindgap.ops.lipschitz.levels import read_levels
from mindgap.ops.lipschitz.lower import lipschitz_lower, slopes
from mindgap.ops.lipschitz.tight import tight_upper


def net(seed: int, *widths: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [
        layer
        for one, two in itertools.pairwise(widths)
        for layer in (nn.Linear(one, two), nn.ReLU())
    ]
    return nn.Sequential(*layers[:-1])


def test_plain_ascent_cannot_move_and_annealing_can() -> None:
    model = net(0, 2, 12, 12, 2).double()
    point = torch.zeros(1, 2, dtype=torch.double, requires_grad=True)
    (row,) = torch.autograd.grad(model(point)[0, 0], point, create_graph=True)
    (uphill,) = torch.autograd.grad(row.norm(), point, materialize_grads=True)
    assert not uphill.any()
    found = lipschitz_lower(model, torch.tensor([[1.0, -2.0]]), starts=1)
    assert found.lower > 1.05 * found.data


def test_finds_what_a_fine_grid_finds() -> None:
    """Two inputs: most often the steepest of 10,000 places in the box; never above the certified bound."""
    line, shares = torch.linspace(-5, 5, 100, dtype=torch.double), list[float]()
    grid = torch.cartesian_prod(line, line)
    starts = 2 * torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
    for seed in range(4):
        model = net(seed, 2, 8, 6, 2).double()
        found = lipschitz_lower(model, starts, box=(-5.0, 5.0))
        assert float(found.point.abs().max()) <= 5
        assert found.lower <= tight_upper(read_levels(model, torch.zeros(2)), steps=10).upper
        shares.append(found.lower / float(slopes(model, grid, batch=10_000)[0].max()))
    assert sorted(shares)[1] >= 0.85
    assert min(shares) >= 0.6


def test_starts_outside_of_the_box_do_not_count() -> None:
    class Steeper(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs + 7 * torch.relu(inputs - 2)

    starts = torch.tensor([[0.0], [0.5], [3.0]])
    found = lipschitz_lower(Steeper(), starts, box=(0.0, 1.0), steps=5)
    assert found.lower == pytest.approx(1)
    assert 0 <= float(found.point) <= 1


def test_without_a_second_derivative_the_starts_count() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Hardsigmoid(), nn.Linear(3, 2))
    found = lipschitz_lower(model, torch.randn(9, 2))
    assert found.lower == found.data > 0


def test_steep_places_near_zero_are_found_from_samples_far_away() -> None:
    """All slopes add up only between the kinks at ±0.2; from there on, half of the units are off."""
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double().repeat(4, 1))
        model[0].bias.fill_(0.2)
        model[2].weight.copy_(torch.tensor([[1.0, -1.0]]).double().repeat(1, 4))
    far = 10 + torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    found = lipschitz_lower(model, far, steps=40, starts=9)
    assert found.data == pytest.approx(4.0)
    assert found.lower == pytest.approx(8.0)


def test_the_value_is_the_slope_at_the_point() -> None:
    model = net(3, 3, 8, 4).double()
    found = lipschitz_lower(model, torch.randn(9, 3))
    jacobian = torch.autograd.functional.jacobian(lambda x: model(x[None])[0], found.point)
    assert found.lower == pytest.approx(float(torch.linalg.matrix_norm(jacobian, 2)), rel=1e-12)


def test_many_outputs_use_power_iteration() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(5, 40).double()
    found = slopes(layer, torch.zeros(2, 5).double())[0]
    exact = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
    assert float(found[0]) == pytest.approx(exact, rel=1e-3)
    assert float(found[0]) <= exact * (1 + 1e-12)


def test_words_are_refused() -> None:
    with pytest.raises(InputError, match="real numbers"):
        lipschitz_lower(nn.Linear(2, 2), torch.zeros(3, 2, dtype=torch.long))
