"""The spectral margin bound: each step of its proof against numbers that need no proof."""

from __future__ import annotations

import math

import pytest
import torch
from cases import convolution, fitted_classes
from scipy import integrate, optimize
from torch import Tensor, nn

from mindgap.bounds import SpectralMargin
from mindgap.bounds.margin_bound import share_of
from mindgap.bounds.spectral_margin import _rounded
from mindgap.core import Subject
from mindgap.nets import MLP, LeNet5, ResNet20


def test_the_formula_is_the_smallest_dudley_integral() -> None:
    radius, margin, n = 3.0, 0.5, 50_000

    def dudley(log: float) -> float:
        start = math.exp(log)
        area = integrate.quad(lambda e: 2 * radius / (margin * e), start, math.sqrt(n))[0]
        return 4 * start / math.sqrt(n) + 12 / n * area

    best = optimize.minimize_scalar(dudley, bounds=(-12, math.log(n) / 2), method="bounded")
    slack = 3 * math.sqrt(math.log(2 / 0.05) / (2 * n))
    found = SpectralMargin().formula(empirical=0.1, radius=radius, margin=margin, samples=n)
    assert found.complexity == pytest.approx(2 * best.fun + slack, rel=1e-6)


def test_the_radius_is_the_best_split_of_the_error_over_layers() -> None:
    """Σ 2 c² ln(2dm) / ε² is smallest, for Σ w ε = 1, at 2 R²."""
    costs, weights = torch.tensor([3.0, 0.5, 7.0]).double(), torch.tensor([2.0, 9.0, 1.0]).double()

    def total(logs: object) -> float:
        shares = torch.softmax(torch.tensor(logs).double(), 0) / weights
        return float((2 * costs.square() / shares.square()).sum())

    best = optimize.minimize(total, [0.0, 0.0, 0.0], tol=1e-12).fun
    radius = float(((costs * weights) ** (2 / 3)).sum()) ** 1.5
    assert best == pytest.approx(2 * radius**2, rel=1e-6)


@pytest.mark.parametrize("origin", ["zero", "initial"])
def test_two_layers_by_hand(origin: str) -> None:
    subject = fitted_classes(torch.double)
    first, second = (m for m in subject.model.modules() if isinstance(m, nn.Linear))
    x = subject.train.take(torch.arange(48)).inputs[0]
    start = subject.initial if origin == "initial" else None

    def norms(layer: nn.Linear, name: str) -> tuple[float, float, float]:
        whole = torch.cat([layer.weight, layer.bias[:, None]], 1).detach()
        if start is not None:
            whole = whole - torch.cat([start[f"{name}.weight"], start[f"{name}.bias"][:, None]], 1)
        values = (
            float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) * (1 + 1e-9),
            float(whole.norm(dim=1).sum()),
            float(layer.bias.detach().norm()),
        )
        return tuple(2 ** (math.ceil(4 * math.log2(value)) / 4) for value in values)

    (s1, a1, t1), (s2, a2, _) = norms(first, "1"), norms(second, "3")
    size = float(x.norm())
    c1 = a1 * math.hypot(size, math.sqrt(48)) * math.sqrt(math.log(2 * 5 * 6))
    hidden = s1 * size + math.sqrt(48) * t1
    c2 = a2 * math.hypot(hidden, math.sqrt(48)) * math.sqrt(math.log(2 * 7 * 3))
    radius = ((c1 * s2) ** (2 / 3) + c2 ** (2 / 3)) ** 1.5
    result = SpectralMargin(origin=origin)(subject)
    assert result.terms["radius"] == pytest.approx(radius, rel=1e-7)
    assert result.valid
    assert result.vacuous


def test_outputs_stay_within_the_sizes_that_the_proof_claims() -> None:
    """Activations of a trained convolutional chain are no larger than B, nor steeper than the product."""
    subject = convolution(torch.double)
    bound = SpectralMargin()
    lipschitz = bound(subject).terms["lipschitz"]
    model = subject.model.eval()
    x = subject.train.take(torch.arange(20)).inputs[0]
    moved = x + 1e-3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        change = (model(x) - model(moved)).flatten(1).norm(dim=1)
    assert bool((change <= lipschitz * (x - moved).flatten(1).norm(dim=1)).all())


def test_norms_are_rounded_up_and_pay_for_it() -> None:
    for norm in (0.3, 1.0, 7.7, 1e6):
        value, share = _rounded(norm)
        assert norm <= value <= norm * 2**0.25 * (1 + 1e-12)
        assert share == share_of(round(4 * math.log2(value)))
    assert _rounded(0.0)[0] == pytest.approx(2**-20)


def test_it_is_not_vacuous_for_a_linear_model_with_many_samples() -> None:
    """The identity on unit vectors: margins of one, two rows of norm one."""
    x, y = torch.eye(2).repeat(50, 1), torch.arange(2).repeat(50)
    model = nn.Linear(2, 2, bias=False)
    model.weight.data.copy_(torch.eye(2))
    few = SpectralMargin()(Subject(model, "cross_entropy", (x, y)))
    assert few.vacuous
    assert few.terms["radius"] == pytest.approx(2 * math.sqrt(100 * math.log(8)), rel=1e-6)
    many = 4_000_000
    radius = 2 * math.sqrt(many * math.log(8))
    numbers = {"radius": radius, "margin": 1.0, "samples": many, "share": 1e-6}
    assert float(SpectralMargin().evaluate(empirical=0.0, **numbers)) < 0.5


def images(model: nn.Module, *shape: int) -> Subject:
    return Subject(model, "cross_entropy", (torch.randn(8, *shape), torch.arange(8) % 2))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (images(ResNet20(width=4), 3, 8, 8), "one after the other"),
        (images(Functional(), 4), "one after the other"),
        (images(MLP((4, 3, 2), activation="sigmoid"), 4), "zero at zero"),
        (images(nn.Sequential(nn.Linear(4, 3), nn.PReLU(), nn.Linear(3, 2)), 4), "not in 1"),
        (
            images(
                nn.Sequential(
                    nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"),
                    nn.Flatten(),
                    nn.Linear(32, 2),
                ),
                1, 4, 4,
            ),
            "padded with zeros",
        ),
    ],
    ids=["residual", "functions", "sigmoid", "learned slope", "padding"],
)  # fmt: skip
def test_what_the_theorem_does_not_cover_is_undefined(subject: Subject, reason: str) -> None:
    result = SpectralMargin()(subject)
    assert result.value is None
    assert reason in result.reason


def test_lenet_is_covered() -> None:
    torch.manual_seed(0)
    result = SpectralMargin()(images(LeNet5(), 1, 28, 28))
    assert result.valid
    assert result.vacuous
    assert result.terms["radius"] > 1e4
