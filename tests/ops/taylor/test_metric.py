"""The Taylor metric against closed forms, and central differences against both."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.ops.taylor.metric import partial_derivatives, taylor_metric, taylor_terms
from mindgap.ops.taylor.stencil import multi_indices


def _points(count: int, dimension: int, seed: int = 0) -> Tensor:
    return (
        torch.rand(
            count, dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        - 0.5
    )


RIDGES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, int], Tensor]]] = {
    "sine": (torch.sin, lambda t, r: torch.sin(t + r * math.pi / 2)),
    "exponential": (torch.exp, lambda t, _: torch.exp(t)),
    "logarithm": (
        lambda t: torch.log(3 + t),
        lambda t, r: (-1) ** (r - 1) * math.factorial(r - 1) / (3 + t) ** r,
    ),
}


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("ridge", sorted(RIDGES))
def test_equals_the_closed_form_of_a_ridge(ridge: str, dimension: int, order: int) -> None:
    """For g(a·x) the multinomial theorem gives T_r = g^(r)(a·x)² ‖a‖^(2r) / r!."""
    function, derivative = RIDGES[ridge]
    direction = torch.linspace(0.7, 1.9, dimension, dtype=torch.float64)
    points = _points(17, dimension)
    found = taylor_terms(lambda z: function(z @ direction), points, order)
    for rank in range(1, order + 1):
        expected = (
            derivative(points @ direction, rank) ** 2 * float(direction.square().sum()) ** rank
        )
        torch.testing.assert_close(
            found[:, rank - 1], expected / math.factorial(rank), rtol=1e-9, atol=1e-9
        )


def test_two_is_gradient_and_hessian() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    points = _points(6, 3)
    found = taylor_metric(net, points, epsilon=0.3, order=2)
    gradient = torch.func.vmap(torch.func.jacrev(net))(points)
    hessian = torch.func.vmap(torch.func.hessian(net))(points)
    expected = 0.3 * gradient.square().sum((1, 2)) + 0.09 / 2 * hessian.square().sum((1, 2, 3))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert all(parameter.grad is None for parameter in net.parameters())


class _Once(torch.autograd.Function):
    """A sine that can be differentiated backward once, and forward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        return torch.sin(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * torch.cos(ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent * torch.cos(ctx.saved_tensors[0])


@pytest.mark.parametrize(
    ("function", "dimension"),
    [
        (lambda z: 3 * z[:, 0] - z[:, 1], 2),
        (lambda z: z[:, 0] ** 3 + z[:, 1], 2),
        (lambda z: torch.sin(z @ torch.ones(2, 9).double() * torch.arange(9)), 2),
        (lambda z: torch.sin(z) * z, 1),
        (lambda z: _Once.apply(z).sum(1), 2),
    ],
    ids=["linear", "in part linear", "many outputs", "one input", "once"],
)
def test_order_two_equals_all_partial_derivatives(
    function: Callable[[Tensor], Tensor], dimension: int
) -> None:
    points = _points(7, dimension)
    expected = torch.zeros(7, 2, dtype=torch.float64)
    for index, value in partial_derivatives(function, points.clone(), 2).items():
        expected[:, sum(index) - 1] += value.square().sum(1) / math.prod(map(math.factorial, index))
    with torch.no_grad():
        found = taylor_terms(function, points, 2)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_value_of_many_inputs_has_derivatives_of_order_two() -> None:
    points = _points(3, 300)
    found = taylor_terms(lambda z: (z**3).sum(1), points, 2)
    torch.testing.assert_close(found[:, 1], (6 * points).square().sum(1) / 2)


def test_every_partial_derivative_of_a_polynomial() -> None:
    points = _points(5, 2)
    found = partial_derivatives(lambda z: z[:, 0] ** 3 * z[:, 1] ** 2, points, 3)
    x, y = points.T
    expected = {
        (2, 1): 12 * x * y,
        (1, 2): 6 * x**2,
        (3, 0): 6 * y**2,
        (0, 3): 0 * x,
        (1, 1): 6 * x**2 * y,
    }
    for index, value in expected.items():
        torch.testing.assert_close(found[index][:, 0], value)
    assert set(found) == {index for rank in (1, 2, 3) for index in multi_indices(2, rank)}


def test_batches_and_several_epsilons_change_nothing() -> None:
    points = _points(23, 2)
    whole = taylor_metric(lambda z: torch.sin(z).sum(1), points, epsilon=(1e-3, 1e-1), order=3)
    parts = [
        taylor_metric(lambda z: torch.sin(z).sum(1), points, epsilon=e, order=3, batch_size=4)
        for e in (1e-3, 0.1)
    ]
    torch.testing.assert_close(whole, torch.stack(parts))


def test_outputs_are_summed() -> None:
    points = _points(9, 2)
    both = taylor_terms(
        lambda z: torch.stack([torch.sin(z[:, 0]), torch.cos(z[:, 1])], 1), points, 2
    )
    one = taylor_terms(lambda z: torch.sin(z[:, 0]), points, 2)
    other = taylor_terms(lambda z: torch.cos(z[:, 1]), points, 2)
    torch.testing.assert_close(both, one + other)


@pytest.mark.parametrize(("order", "allowed"), [(1, 1e-6), (2, 1e-4), (3, 1e-2)])
def test_differences_come_near_the_derivatives(order: int, allowed: float) -> None:
    points = _points(11, 3)

    def function(z: Tensor) -> Tensor:
        return torch.from_numpy(torch.sin(2 * z).prod(1).numpy())  # hidden from torch

    exact = taylor_terms(lambda z: torch.sin(2 * z).prod(1), points, order)
    torch.testing.assert_close(
        taylor_terms(function, points, order, method="differences"),
        exact,
        rtol=allowed,
        atol=allowed,
    )


def test_differences_have_second_order() -> None:
    points = _points(20, 2)

    def error(step: float) -> float:
        found = taylor_terms(
            lambda z: torch.exp(z.sum(1)), points, 3, method="differences", step=step
        )
        return float((found - taylor_terms(lambda z: torch.exp(z.sum(1)), points, 3)).abs().max())

    assert 3.5 < error(0.08) / error(0.04) < 4.5


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "flat points": (lambda: taylor_terms(torch.sin, torch.zeros(3)), "n rows"),
    "whole numbers": (
        lambda: taylor_terms(torch.sin, torch.zeros(3, 1, dtype=torch.long)),
        "real numbers",
    ),
    "epsilon": (
        lambda: taylor_metric(torch.sin, torch.zeros(3, 1), epsilon=0.0),
        "epsilon must be above 0",
    ),
    "order": (lambda: taylor_terms(torch.sin, torch.zeros(3, 1), 0), "order must be"),
    "scalar": (lambda: taylor_terms(lambda z: z.sum(), torch.zeros(3, 1)), "one value per row"),
    "rows": (
        lambda: taylor_terms(lambda z: z - z.mean(0), torch.rand(3, 1)),
        "every row by itself",
    ),
    "too many": (lambda: taylor_terms(torch.sin, torch.zeros(2, 300), 2), "at most"),
    "step": (lambda: taylor_terms(torch.sin, torch.zeros(2, 1), 1, step=0.1), "Leave it out"),
    "lost rows": (
        lambda: taylor_terms(lambda z: z[:1], torch.zeros(2, 1), 1, method="differences"),
        "each of 4 rows",
    ),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_says_what_is_wrong(case: str) -> None:
    call, words = BAD[case]
    with pytest.raises(InputError, match=words):
        call()
