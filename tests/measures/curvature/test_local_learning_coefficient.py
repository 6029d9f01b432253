"""The local learning coefficient where it is known: quadratics, and a product of two weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from mindgap.core.subject import Subject
from mindgap.measures import LocalLearningCoefficient
from mindgap.ops.curvature.langevin import potential_scale_reduction


class Product(nn.Module):
    """y = a b x, whose minima with a b = 1 form a curve."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in (a, b))

    def forward(self, x: Tensor) -> Tensor:
        return self.a * self.b * x


def product(a: float, b: float, samples: int = 200) -> Subject:
    x = torch.linspace(-1.7, 1.7, samples, dtype=torch.float64)[:, None]
    return Subject(Product(a, b), "mse", (x, a * b * x))


def by_quadrature(subject: Subject, localization: float) -> float:
    """The expectation under the density that the chains should sample, on a grid."""
    x = subject.train.take(torch.arange(len(subject.train))).inputs[0]
    center = [float(p.detach()) for p in subject.model.parameters()]
    scale = len(x) / math.log(len(x))
    axis = torch.linspace(-4, 4, 1201, dtype=torch.float64)
    a, b = torch.meshgrid(center[0] + axis, center[1] + axis, indexing="ij")
    loss = (a * b - center[0] * center[1]).square() * float(x.square().mean())
    spring = localization / 2 * ((a - center[0]).square() + (b - center[1]).square())
    weight = torch.exp(-scale * loss - spring)
    return float((scale * loss * weight).sum() / weight.sum())


LONG = LocalLearningCoefficient(localization=10.0, chains=8, burn_in=200, draws=1000)


@pytest.mark.parametrize("weights", [2, 10])
def test_of_a_quadratic_is_half_the_number_of_weights(weights: int) -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(300, weights, generator=source, dtype=torch.float64)
    model = nn.Linear(weights, 1, bias=False).double()
    y = model(x).detach()
    result = LONG.replace(localization=0.01)(Subject(model, "mse", (x, y)))
    assert result.details["converged"]
    assert abs(result.value - weights / 2) < 4 * result.standard_error + 0.05 * weights / 2


DEFAULT = LocalLearningCoefficient(localization=0.1)


def test_defaults_suffice_for_a_quadratic_of_any_condition() -> None:
    """Curvatures from 0.02 to 2: with one step size the flattest would take 800 steps for one."""
    source = torch.Generator().manual_seed(0)
    axes = torch.linspace(-1, 0, 8, dtype=torch.float64)
    x = torch.randn(1000, 8, generator=source, dtype=torch.float64) * 10**axes
    model = nn.Linear(8, 1, bias=False).double()
    result = DEFAULT(Subject(model, "mse", (x, model(x).detach())))
    assert result.details["converged"], result
    assert result.value == pytest.approx(4, rel=0.1)


def test_steps_are_exact_on_a_quadratic_however_long() -> None:
    """A single noise per step would be 14 % too much, at an eighth of the size that diverges."""
    x = torch.eye(4, dtype=torch.float64).repeat(50, 1)
    subject = Subject(nn.Linear(4, 1, bias=False).double(), "mse", (x, torch.zeros(200, 1)))
    subject.model.weight.data.zero_()
    curvature = 0.5 * 200 / math.log(200) + 0.01
    result = LONG.replace(localization=0.01, step=0.5 / curvature)(subject)
    assert abs(result.value - 2) < 4 * result.standard_error
    assert result.standard_error < 0.05


def test_defaults_find_the_codimension_of_the_minima_of_a_linear_net() -> None:
    """Every 2×2 matrix is a product of 2×5 and 5×2 in a manifold of ways: λ = 4 / 2, of 20 weights."""
    source = torch.Generator().manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 5, bias=False), nn.Linear(5, 2, bias=False)).double()
    x = torch.randn(2000, 2, generator=source, dtype=torch.float64)
    with torch.no_grad():
        for layer in net:
            layer.weight.normal_(generator=source)
    result = DEFAULT.replace(localization=1.0)(Subject(net, "mse", (x, net(x).detach())))
    assert result.details["converged"]
    assert abs(result.value - 2) < 4 * result.standard_error + 0.1
    assert result.terms["half_of_weights"] == 10


class Quartic(nn.Module):
    """y = w² x, whose squared loss is w⁴ around zero: λ = 1/4."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.w.square() * x


def test_of_a_quartic_is_a_quarter() -> None:
    x = torch.ones(1000, 1, dtype=torch.float64)
    # There is no curvature at the minimum to choose a step by.
    result = DEFAULT.replace(step=0.01, draws=2000)(Subject(Quartic(), "mse", (x, 0 * x)))
    assert abs(result.value - 0.25) < 4 * result.standard_error + 0.01


def test_batches_do_not_heat_the_chains() -> None:
    """Without the gradient of the batch at the center, noise of ten samples would add a fifth."""
    source = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 4, generator=source, dtype=torch.float64)
    model = nn.Linear(4, 1, bias=False).double()
    y = model(x).detach() + torch.randn(2000, 1, generator=source, dtype=torch.float64)
    model.weight.data = torch.linalg.lstsq(x, y).solution.T
    result = LONG.replace(localization=0.1, batch_size=100)(Subject(model, "mse", (x, y)))
    assert abs(result.value - 2) < 4 * result.standard_error + 0.2


def test_of_a_curve_of_minima_is_half_of_one() -> None:
    """At (1, 1) one direction matters of two, so that it is a half and not one."""
    subject = product(1.0, 1.0)
    result = LONG(subject)
    expected = by_quadrature(subject, 10.0)
    assert expected == pytest.approx(0.5, abs=0.05)
    assert abs(result.value - expected) < 4 * result.standard_error + 0.05 * expected


def test_of_a_crossing_of_minima_is_smaller() -> None:
    """At (0, 0) two lines of minima cross; λ is a half with a logarithmic correction."""
    subject = product(0.0, 0.0)
    result = LONG.replace(step=5e-3, draws=2000)(subject)  # no curvature here to choose it by
    expected = by_quadrature(subject, 10.0)
    assert expected < 0.4
    assert abs(result.value - expected) < 4 * result.standard_error + 0.05


def test_batches_change_little() -> None:
    subject = product(1.0, 1.0, samples=400)
    whole, some = (LONG.replace(batch_size=size, draws=500)(subject).value for size in (400, 100))
    assert some == pytest.approx(whole, abs=0.15)


def test_a_step_too_large_is_undefined() -> None:
    result = LocalLearningCoefficient(step=1.0)(product(1.0, 1.0))
    assert result.value is None
    assert "diverged with step size 1; pass a smaller step" in result.reason


def test_weights_that_are_no_minimum_are_not_converged() -> None:
    x = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None]
    subject = Subject(Product(1.0, 1.0), "mse", (x, 3 * x))
    result = LocalLearningCoefficient()(subject)
    assert result.value < 0
    assert not result.details["converged"]


def test_chains_that_disagree_have_a_large_r_hat() -> None:
    noise = torch.randn(4, 200, generator=torch.Generator().manual_seed(0))
    assert potential_scale_reduction(noise) < 1.02
    assert potential_scale_reduction(noise + torch.arange(4)[:, None]) > 1.5
    assert potential_scale_reduction(torch.tensor([[1.0, 1.0], [2.0, 2.0]])) == math.inf
