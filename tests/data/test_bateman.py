"""The Bateman equations: closed form, solver and a fine Euler scheme agree."""

import pytest
import torch
from torch import Tensor

from mindgap.core.errors import InputError
from mindgap.data.bateman import bateman, bateman_system, slope
from mindgap.ops.taylor.metric import partial_derivatives


def points(count: int, species: int, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    rows = torch.rand(count, species + 2, dtype=torch.float64, generator=random)
    return rows * torch.tensor([1.0] * (species + 1) + [10.0], dtype=torch.float64)


def euler(rows: Tensor, production: list[float], reaction: list[list[float]], steps: int) -> Tensor:
    sigma, matrix = torch.tensor(production).double(), torch.tensor(reaction).double()
    state, step = rows[:, :-1], rows[:, -1:] / steps
    for _ in range(steps):
        state = state + step * slope(state, sigma, matrix)
    return state


@pytest.mark.parametrize(
    ("production", "reaction", "speed"), [(1.0, -1.0, 1.0), (0.45, -1.2, 0.7), (-0.5, -0.8, 2.0)]
)
def test_closed_form_equals_solver(production: float, reaction: float, speed: float) -> None:
    rows = points(200, 1)
    expected = bateman(rows, production=production, reaction=reaction, speed=speed)
    found = bateman_system(rows, [production], [[reaction]], speed=speed)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)


def test_euler_comes_near_at_first_order() -> None:
    rows = points(50, 1)
    exact = bateman(rows)
    errors = [
        float((euler(rows, [1.0], [[-1.0]], steps) - exact).abs().max())
        for steps in (2000, 4000, 8000)
    ]
    assert errors[-1] < 3e-3
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.1)
    assert errors[1] / errors[2] == pytest.approx(2, abs=0.1)


def test_solver_of_three_species_equals_a_fine_euler_scheme() -> None:
    production, reaction = [1.0, 0.5, -0.3], [[-1.0, 0.0, 0.0], [0.6, -0.5, 0.0], [0.0, 0.4, -0.2]]
    rows = points(20, 3)
    found = bateman_system(rows, production, reaction)
    coarse, fine = (euler(rows, production, reaction, steps) for steps in (4000, 8000))
    torch.testing.assert_close(
        found, 2 * fine - coarse, rtol=1e-4, atol=1e-5
    )  # without the error of first order


def test_equal_species_are_one() -> None:
    """Species with the same coefficients act as their sum."""
    rows = points(30, 2)
    found = bateman_system(rows, [0.8, 0.8], [[-0.9, 0.0], [0.0, -0.9]])
    merged = torch.stack([rows[:, 0], rows[:, 1] + rows[:, 2], rows[:, 3]], dim=1)
    joined = torch.stack([found[:, 0], found[:, 1] + found[:, 2]], dim=1)
    torch.testing.assert_close(
        joined, bateman(merged, production=0.8, reaction=-0.9), rtol=1e-7, atol=1e-8
    )


def test_what_is_lost_is_gained() -> None:
    rows = points(100, 1)
    torch.testing.assert_close(bateman(rows).sum(1), rows[:, 0] + rows[:, 1])


def test_derivatives_are_finite_and_right_where_the_exponent_vanishes() -> None:
    """aη₀ = bu₀ with both negative, or t = 0, makes the exponent zero: the formula must not divide by it."""
    rows = torch.tensor([[0.5, 0.5, 3.0], [0.5, 0.2, 0.0]], dtype=torch.float64)
    act = lambda z: bateman(z, production=-1.0, reaction=-1.0)  # noqa: E731
    found = partial_derivatives(act, rows, 2)
    step = 1e-4
    for axis in range(3):
        move = step * torch.eye(3, dtype=torch.float64)[axis]
        first = (act(rows + move) - act(rows - move)) / (2 * step)
        second = (act(rows + move) - 2 * act(rows) + act(rows - move)) / step**2
        index = tuple(int(k == axis) for k in range(3))
        torch.testing.assert_close(found[index], first, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found[tuple(2 * k for k in index)], second, rtol=1e-5, atol=1e-5)


def test_time_derivative_obeys_the_equations() -> None:
    rows = points(40, 1, seed=3)
    found = partial_derivatives(bateman, rows, 1)[(0, 0, 1)]
    expected = slope(bateman(rows), torch.ones(1).double(), -torch.ones(1, 1).double())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="rows of 3 numbers"):
        bateman(torch.ones(4, 2))
    with pytest.raises(InputError, match="M x M"):
        bateman_system(torch.ones(4, 4), [1.0, 1.0], [[1.0]])
    with pytest.raises(InputError, match="rows of 4 numbers"):
        bateman_system(torch.ones(4, 3), [1.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])


def test_blow_up_is_told() -> None:
    with pytest.raises(InputError, match="must have a solution"):
        bateman_system(torch.tensor([[1.0, 1.0, 10.0]]), [1.0], [[1.0]])
