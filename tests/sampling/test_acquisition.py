"""The acquisition function, against closed forms."""

import pytest
import torch

from mindgap.core.errors import InputError
from mindgap.sampling import Acquisition, Box

POINTS = torch.tensor([[0.1, 0.5], [0.4, 0.2], [0.9, 0.7]], dtype=torch.float64)


def product(points: torch.Tensor) -> torch.Tensor:
    return points[:, 0] * points[:, 1]


@pytest.mark.parametrize(
    ("kind", "tolerance"), [("derivative", 1e-12), ("differences", 1e-6), ("sampled", 0.2)]
)
def test_kinds_agree_on_a_product(kind: str, tolerance: float) -> None:
    """The gradient of xy is (y, x), its Hessian has two ones: Df is the exact variance."""
    epsilon = 0.01
    found = Acquisition(kind=kind, epsilon=epsilon, draws=4000).anywhere(product, POINTS)  # type: ignore[arg-type]
    expected = epsilon * POINTS.square().sum(1) + epsilon**2
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=0)


def test_neighbors_measure_distances_in_units_of_the_box() -> None:
    """Scaling an axis together with its bounds changes nothing."""
    points = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    acquisition, values = Acquisition(kind="neighbors"), product(points)[:, None]
    plain = acquisition.of(None, points, values, Box([0, 0], [1, 1]))
    scaled = acquisition.of(
        None, points * torch.tensor([1.0, 1000.0]), values, Box([0, 0], [1, 1000])
    )
    torch.testing.assert_close(plain, scaled)
    assert acquisition.needed(Box([0, 0], [1, 1])) == 5


def test_too_few_points_have_equal_values() -> None:
    found = Acquisition(kind="neighbors").of(None, POINTS[:1], torch.ones(1, 1), Box.unit(2))
    assert found.tolist() == [1.0]


def test_a_function_is_needed_to_differentiate() -> None:
    with pytest.raises(InputError, match="acquisition='derivative' must have a function to call"):
        Acquisition().of(None, POINTS, torch.ones(3, 1), Box.unit(2))
