"""Sharpness against closed forms, all corners of a box, and L-BFGS-B."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from cases import CASES, mlp_classes
from scipy import optimize
from torch import nn

from mindgap.core.subject import Subject
from mindgap.measures import AdaptiveSharpness, AverageSharpness, KeskarSharpness
from mindgap.ops.curvature.ascent import ScaledLoss, ball, box, climb
from mindgap.ops.curvature.flat_loss import FlatLoss


def linear(seed: int = 0) -> tuple[Subject, torch.Tensor]:
    """A linear regression of six weights at its minimum, and its Hessian."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 6, generator=source, dtype=torch.float64)
    y = torch.randn(40, 1, generator=source, dtype=torch.float64)
    model = nn.Linear(6, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.linalg.lstsq(x, y).solution.T + 1e-3)
    return Subject(model, "mse", (x, y)), 2 * x.T @ x / 40


class TestKeskar:
    @pytest.mark.parametrize("seed", range(4))
    def test_against_all_corners(self, seed: int) -> None:
        subject, _ = linear(seed)
        result = KeskarSharpness(radius=0.05)(subject)
        batch = subject.train.take(torch.arange(40))
        w = subject.model.weight.detach().flatten()
        radius = 0.05 * (w.abs() + 1)
        losses = [
            float(
                (batch.inputs[0] @ (w + radius * torch.tensor(signs)) - batch.target[:, 0])
                .square()
                .mean()
            )
            for signs in itertools.product((-1.0, 1.0), repeat=6)
        ]
        here = result.terms["loss"]
        largest = 100 * (max(losses) - here) / (1 + here)
        assert 0.9 * largest <= result.value <= largest + 1e-9

    @pytest.mark.parametrize("case", CASES)
    def test_finds_as_much_as_the_papers_climb(self, case: str) -> None:
        subject = CASES[case](torch.float64)
        flat = FlatLoss(subject)
        radius = 1e-3 * (flat.point.abs() + 1)
        evaluate, best = ScaledLoss(flat, torch.ones_like(radius), list(flat.batches())), [-np.inf]

        def negative(place: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = evaluate(torch.from_numpy(place))
            best.append(value)
            return -value, -slope.numpy()

        optimize.minimize(
            negative,
            np.zeros(len(radius)),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip((-radius).tolist(), radius.tolist(), strict=True)),
            options={"maxiter": 10, "gtol": 0, "ftol": 0},
        )
        result = KeskarSharpness()(subject)
        loss = result.terms["loss"]
        assert result.terms["largest"] - loss >= 0.999 * (max(best) - loss)
        assert result.terms["from_gradient"] / 100 * (1 + loss) >= 0.99 * (max(best) - loss)

    def test_grows_with_the_box(self) -> None:
        (chart,) = KeskarSharpness()(mlp_classes(torch.float64)).charts
        heights = chart.series[0].y
        assert list(heights) == sorted(heights)
        assert heights[0] > 0


class TestAdaptive:
    @pytest.mark.parametrize("norm", ["inf", "2"])
    def test_of_one_weight_is_closed(self, norm: str) -> None:
        model = nn.Linear(1, 1, bias=False).double()
        nn.init.constant_(model.weight, 3.0)
        x = torch.ones(8, 1).double()
        result = AdaptiveSharpness(radius=0.1, norm=norm, batch_size=4)(
            Subject(model, "mse", (x, x))
        )
        assert result.value == pytest.approx(2.3**2 - 2.0**2)
        assert result.terms["batches"] == 2

    def test_in_the_ball_is_the_largest_scaled_eigenvalue(self) -> None:
        subject, hessian = linear()
        w = subject.model.weight.detach().flatten()
        scaled = w[:, None] * hessian * w
        result = AdaptiveSharpness(radius=10.0, norm="2", batch_size=40, steps=60)(subject)
        # Far away the slope at the weights is negligible.
        expected = 100 / 2 * float(torch.linalg.eigvalsh(scaled)[-1])
        assert result.value == pytest.approx(expected, rel=0.02)

    def test_smaller_batches_are_sharper(self) -> None:
        subject = mlp_classes(torch.float64)
        small, large = (float(AdaptiveSharpness(batch_size=size)(subject)) for size in (6, 48))
        assert small > large > 0


class TestAverage:
    def test_is_half_the_scaled_trace_of_a_quadratic(self) -> None:
        subject, hessian = linear()
        w = subject.model.weight.detach().flatten()
        expected = 0.05**2 / 2 * float((w.square() * hessian.diagonal()).sum())
        result = AverageSharpness(draws=2000)(subject)
        assert abs(result.value - expected) < 4 * result.standard_error
        assert result.standard_error < 0.05 * expected

    def test_of_a_large_network_every_draw_sees_other_samples(self) -> None:
        subject, hessian = linear()
        subject.cached("operations", lambda: 10**10)  # as if it were so large
        w = subject.model.weight.detach().flatten()
        expected = 0.05**2 / 2 * float((w.square() * hessian.diagonal()).sum())
        found = [AverageSharpness(seed=seed)(subject) for seed in range(20)]
        assert all(result.details["samples"] == 20 for result in found)  # two for each of ten draws
        mean, error = (
            sum(parts) / 20
            for parts in ([r.value for r in found], [r.standard_error for r in found])
        )
        assert abs(mean - expected) < 3 * error / 20**0.5


class TestClimb:
    @pytest.mark.parametrize("vertex", [box, ball])
    def test_stays_inside_and_never_descends(self, vertex: object) -> None:
        seen = []

        def wavy(place: torch.Tensor) -> tuple[float, torch.Tensor]:
            seen.append(place)
            return float((3 * place).sin().sum()), 3 * (3 * place).cos()

        best, place, _ = climb(wavy, vertex, torch.full((3,), 0.1), 40)
        assert best == wavy(place)[0] >= wavy(torch.full((3,), 0.1))[0]
        sizes = [float(place.abs().max() if vertex is box else place.norm()) for place in seen]
        assert max(sizes) <= 1 + 1e-6
        if vertex is box:
            assert best == pytest.approx(3, abs=1e-2)  # inside, where a full step overshoots

    def test_no_slope_no_rise(self) -> None:
        flat = lambda place: (1.0, torch.zeros_like(place))  # noqa: E731
        assert climb(flat, ball, torch.zeros(3), 5)[::2] == (1.0, True)

    def test_says_whether_a_step_could_add_to_it(self) -> None:
        curvatures = torch.tensor([1.0, 0.9, 0.5]).double()
        bowl = lambda place: (float((curvatures * place.square()).sum()), 2 * curvatures * place)  # noqa: E731
        start = torch.tensor([0.01, 0.1, 0.1]).double()

        short, long = (climb(bowl, ball, start, steps) for steps in (2, 60))
        assert (short.converged, long.converged) == (False, True)
        assert long.value == pytest.approx(1, rel=1e-3)
        subject, _ = linear()
        settings = {"radius": 10.0, "norm": "2", "batch_size": 40}
        for steps, told in ((1, ("has not converged",)), (100, ())):
            assert AdaptiveSharpness(steps=steps, **settings)(subject).caveats == told
