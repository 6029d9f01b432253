"""The derivative bound: cell integrals by quadrature, and the inequality on known functions."""

from collections.abc import Callable

import pytest
import scipy.integrate
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.ops.taylor.derivative_bound import Cells, derivative_bound, voronoi_cells

KNOWN: dict[
    str, tuple[Callable, Callable, float]
] = {  # function, slope, largest second derivative on [-1, 1]
    "runge": (lambda x: 1 / (1 + 25 * x**2), lambda x: -50 * x / (1 + 25 * x**2) ** 2, 50.0),
    "tanh": (lambda x: torch.tanh(4 * x), lambda x: 4 / torch.cosh(4 * x) ** 2, 32 * 0.7699 / 2),
    "line": (lambda x: 2 * x, lambda x: 2 + 0 * x, 0.0),
}


def _random(count: int, seed: int) -> Tensor:
    return (
        2 * torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        - 1
    )


@pytest.mark.parametrize("power", [0, 1, 2, 3, 4])
def test_moments_equal_quadrature(power: int) -> None:
    points = _random(7, 0)
    found = voronoi_cells(points, -1.0, 1.0).moment(power)
    for point, value in zip(points.tolist(), found.tolist(), strict=True):
        grid = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
        inside = (grid[:, None] - points).abs().argmin(1) == (points - point).abs().argmin()
        ends = grid[inside].min().item(), grid[inside].max().item()
        expected, _ = scipy.integrate.quad(
            lambda x, p=point: abs(x - p) ** power, *ends, points=[point]
        )
        assert value == pytest.approx(expected, abs=1e-4)


def test_cells_fill_the_interval_and_copies_share() -> None:
    points = torch.tensor([0.5, 0.1, 0.5, 0.9], dtype=torch.float64)
    cells = voronoi_cells(points, 0.0, 1.0)
    assert float(cells.moment(0).sum()) == pytest.approx(1.0)
    assert float(cells.moment(2)[0]) == float(cells.moment(2)[2])
    whole = voronoi_cells(points[1:], 0.0, 1.0)
    assert float(cells.moment(2).sum()) == pytest.approx(float(whole.moment(2).sum()))


def test_the_published_integral_is_never_smaller_and_a_quarter_can_be_too_small() -> None:
    ends = torch.rand(2, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cells = Cells(*ends, torch.ones(50, dtype=torch.float64))
    assert bool((cells.published_moment() >= cells.moment(2)).all())
    one_sided = Cells(torch.zeros(1), torch.ones(1), torch.ones(1))
    assert (
        float(one_sided.moment(2)) > float(one_sided.published_moment()) * 3 / 4
    )  # the paper's (1) has |S|³/4


@pytest.mark.parametrize("name", sorted(KNOWN))
@pytest.mark.parametrize("seed", range(5))
def test_holds_for_random_networks(name: str, seed: int) -> None:
    """The full inequality, with what the network misses and the curvature, above the true integral."""
    function, slope, curvature = KNOWN[name]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    lipschitz = float(net[0].weight.detach().norm() * net[2].weight.detach().norm())
    points = _random(12, seed)
    grid = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
    with torch.no_grad():
        truth = float((function(grid) - net(grid[:, None])[:, 0]).square().mean()) * 2
        residuals = function(points) - net(points[:, None])[:, 0]
    bound = derivative_bound(
        points,
        slope(points),
        lipschitz,
        low=-1.0,
        high=1.0,
        residuals=residuals,
        curvature=curvature,
    )
    assert truth <= float(bound.sum())


def test_without_curvature_it_equals_the_integral_of_a_meeting_pair_of_lines() -> None:
    """f = x and the model -x meet at 0: the bound is attained."""
    found = derivative_bound([0.0], [1.0], 1.0, low=-1.0, high=0.5)
    assert float(found.sum()) == pytest.approx(4 * (1 + 0.125) / 3)


@pytest.mark.parametrize(
    "arguments",
    [([2.0], [1.0], 1.0), ([0.0, 0.5], [1.0], 1.0), ([0.0], [1.0], -1.0)],
    ids=["outside", "slope missing", "negative"],
)
def test_says_what_is_wrong(arguments: tuple) -> None:
    with pytest.raises(InputError, match="must"):
        derivative_bound(*arguments, low=-1.0, high=1.0)


def test_all_terms_equal_the_integral_of_the_square() -> None:
    """Sample by sample: (e + (|f'| + K) r + C r²/2)² over its cell, by quadrature."""
    points, slopes, missed = [0.1, 0.4, 0.9], [1.5, -0.3, 2.0], [0.2, -0.5, 0.7]
    found = derivative_bound(
        points, slopes, 0.8, low=0.0, high=1.0, residuals=missed, curvature=3.0
    )
    ends = [(0.0, 0.25), (0.25, 0.65), (0.65, 1.0)]
    for value, point, slope, error, cell in zip(
        found.tolist(), points, slopes, missed, ends, strict=True
    ):

        def height(x, p=point, s=slope, e=error):
            return (abs(e) + (abs(s) + 0.8) * abs(x - p) + 1.5 * (x - p) ** 2) ** 2

        expected, _ = scipy.integrate.quad(height, *cell, points=[point])
        assert value == pytest.approx(expected, rel=1e-9)
