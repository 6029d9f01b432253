"""Trace and largest eigenvalue of a network with more weights than are written out."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from cases import convolution, mlp_classes
from ops.curvature.dense import brute_hessian
from torch import nn

from mindgap.core.errors import NotFiniteError
from mindgap.core.subject import Subject
from mindgap.measures import (
    AdaptiveSharpness,
    AverageSharpness,
    FisherRaoNorm,
    GradientNoise,
    HessianTrace,
    KeskarSharpness,
    LargestHessianEigenvalue,
    LocalLearningCoefficient,
)
from mindgap.measures.curvature import curvature_measure

ALL = (
    AdaptiveSharpness,
    AverageSharpness,
    FisherRaoNorm,
    GradientNoise,
    HessianTrace,
    KeskarSharpness,
    LargestHessianEigenvalue,
    LocalLearningCoefficient,
)


def wide(bend: nn.Module | None = None) -> Subject:
    """A convolution and batch normalization with moved statistics, 410 weights."""
    source = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), bend or nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)
        ).double()
    with torch.no_grad():
        model[1].running_mean += 0.3
        model[1].running_var *= 1.7
    x = torch.randn(60, 1, 6, 6, generator=source, dtype=torch.float64)
    return Subject(model, "cross_entropy", (x, torch.arange(60) % 3))


class TestLargestHessianEigenvalue:
    def test_the_error_is_the_spread_of_groups_along_the_eigenvector(self) -> None:
        subject = wide()
        measure = LargestHessianEigenvalue(samples=40)
        result = measure(subject)
        some = measure.flat(subject)
        vector = measure.pairs(some).vectors[0]
        places = torch.arange(40).split(4)
        groups = [brute_hessian(some.subject.part(index)) for index in places]
        spread = torch.stack([vector @ matrix @ vector for matrix in groups]).std() / 10**0.5
        assert result.standard_error == pytest.approx(float(spread), rel=1e-9)
        assert LargestHessianEigenvalue()(subject).standard_error is None

    def test_the_error_is_about_the_spread_over_draws(self) -> None:
        source = torch.Generator().manual_seed(0)
        x = torch.randn(4000, 3, generator=source, dtype=torch.float64) * torch.tensor([3.0, 1, 1])
        subject = Subject(nn.Linear(3, 1).double(), "mse", (x, x[:, :1]))
        found = [LargestHessianEigenvalue(samples=300, seed=seed)(subject) for seed in range(30)]
        spread = float(torch.tensor([one.value for one in found]).std())
        told = sum(one.standard_error for one in found) / len(found)
        assert told == pytest.approx(spread, rel=0.35)

    def test_a_large_network_is_searched_on_fewer_samples(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(curvature_measure, "WORK", 1)
        monkeypatch.setattr(curvature_measure, "FEWEST", 20)
        for measure in (LargestHessianEigenvalue(), HessianTrace()):
            assert measure(wide(nn.Tanh())).details["samples"] == 20
        # The trace of a network that does not bend takes no products, so it keeps all.
        assert HessianTrace()(wide()).details["samples"] == 60
        assert KeskarSharpness()(wide()).details["samples"] == 60

    def test_equals_the_dense_hessian(self) -> None:
        subject = wide()
        result = LargestHessianEigenvalue()(subject)
        values = torch.linalg.eigvalsh(brute_hessian(subject))
        assert result.status == "estimate"
        assert result.details["converged"]
        error = result.terms["residual"] + 1e-9
        assert result.value == pytest.approx(float(values[-1]), abs=error)
        assert result.terms["second"] == pytest.approx(float(values[-2]), abs=error)
        assert result.terms["smallest"] == pytest.approx(float(values[0]), abs=error)
        assert error < 2e-3 * result.value

    def test_the_figure_is_the_density(self) -> None:
        (chart,) = LargestHessianEigenvalue()(mlp_classes(torch.float64)).charts
        (series,) = chart.series
        area = float(torch.trapezoid(torch.tensor(series.y), torch.tensor(series.x)))
        assert area == pytest.approx(1, abs=0.01)
        assert chart.marks[0].x < max(series.x)


class TestHessianTrace:
    def test_unbiased_with_an_honest_error(self) -> None:
        subject = wide(nn.Tanh())
        truth = float(brute_hessian(subject).trace())
        found = [HessianTrace(seed=seed)(subject) for seed in range(12)]
        scores = torch.tensor([(float(one) - truth) / one.standard_error for one in found])
        assert float(scores.abs().max()) < 4.5
        assert float(scores.mean().abs()) < 1.5
        assert all(one.standard_error < 0.3 * truth for one in found)
        assert all(one.interval.low < float(one) < one.interval.high for one in found)

    def test_relu_networks_are_exact_without_probes(self) -> None:
        subject = wide()
        result = HessianTrace()(subject)
        assert (result.status, result.standard_error) == ("exact", None)
        assert result.terms["probed"] == 0
        assert float(result) == pytest.approx(float(brute_hessian(subject).trace()), rel=1e-9)

    def test_the_draw_of_samples_has_an_honest_error(self) -> None:
        source = torch.Generator().manual_seed(1)
        net = wide().model
        x = torch.randn(1_200, 1, 6, 6, generator=source, dtype=torch.float64)
        x = x * torch.linspace(0.2, 2, 1_200)[:, None, None, None].double()
        subject = Subject(net, "cross_entropy", (x, torch.arange(1_200) % 3))
        truth = float(HessianTrace(samples=1_200)(subject))
        found = [HessianTrace(samples=200, seed=seed)(subject) for seed in range(20)]
        errors = torch.tensor([one.standard_error for one in found])
        spread = float(torch.tensor([float(one) - truth for one in found]).square().mean().sqrt())
        assert 0.5 < spread / float(errors.mean()) < 1.6
        assert all(one.status == "estimate" for one in found)

    def test_of_a_large_network_every_probe_sees_other_samples(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(curvature_measure, "NUMBERS", 0)  # no room for a search
        subject = wide(nn.Tanh())
        subject.cached("operations", lambda: 3 * 10**9)  # as if it were so large
        matrix = brute_hessian(subject)
        found = [HessianTrace(seed=seed)(subject) for seed in range(12)]
        scores = [(one.value - float(matrix.trace())) / one.standard_error for one in found]
        assert max(map(abs, scores)) < 4.5
        assert abs(sum(scores)) / 12 < 1.5
        assert all(one.details["samples"] == 40 for one in found)  # two for each of 20 probes
        assert sum(found[0].details["by_tensor"].values()) == pytest.approx(found[0].value)
        assert "weights, whose products fit in memory" in LargestHessianEigenvalue()(subject).reason
        sharpness = KeskarSharpness(work=1e15)(subject)  # without corners only one climb is left
        assert sharpness.value == sharpness.terms["from_gradient"] > 0

    def test_parts_sum_to_the_whole(self) -> None:
        result = HessianTrace()(wide())
        assert sum(result.details["by_tensor"].values()) == pytest.approx(result.value)

    def test_small_networks_are_exact_and_parts_are_diagonals(self) -> None:
        subject = mlp_classes(torch.float64)
        result = HessianTrace()(subject)
        assert result.status == "exact"
        assert result.standard_error is None
        diagonal = brute_hessian(subject).diagonal()
        first = next(subject.model.parameters())
        assert next(iter(result.details["by_tensor"].values())) == pytest.approx(
            float(diagonal[: first.numel()].sum())
        )


@pytest.mark.parametrize("measure", ALL)
class TestAll:
    def test_random_outputs_are_refused_with_advice(self, measure: type) -> None:
        subject = mlp_classes(torch.float32)
        model = copy.deepcopy(subject.model)
        model.register_forward_hook(lambda _, x, y: nn.functional.dropout(y))
        result = measure()(Subject(model, subject.loss, subject.train))
        assert result.value is None
        assert "Switch dropout and noise off" in result.reason

    def test_a_frozen_model_is_refused(self, measure: type) -> None:
        subject = mlp_classes(torch.float32)
        model = copy.deepcopy(subject.model).requires_grad_(False)
        result = measure()(Subject(model, subject.loss, subject.train))
        assert "got a model without any" in result.reason

    def test_a_subset_is_told(self, measure: type) -> None:
        result = measure(samples=20)(convolution(torch.float32))
        used = 48 if measure is LocalLearningCoefficient else 20  # its chains need them all
        assert (result.details["samples"], result.details["of_samples"]) == (used, 48)
        assert result.status == "estimate"


def test_gradient_noise_of_a_subset_has_an_error_that_covers() -> None:
    subject = mlp_classes(torch.float64)
    truth = float(GradientNoise()(subject))
    found = [GradientNoise(samples=20, seed=seed)(subject) for seed in range(20)]
    inside = [abs(float(one) - truth) < 3 * one.standard_error for one in found]
    assert sum(inside) >= 18


def test_fisher_rao_of_a_network_without_biases_is_the_closed_form() -> None:
    """Layers times the root mean square of ⟨∂ℓ/∂f, f⟩, as Jiang and others print it."""
    source = torch.Generator().manual_seed(0)
    widths = (5, 7, 6, 3)
    layers = [nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(widths)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).double()
    x = torch.randn(30, 5, generator=source, dtype=torch.float64)
    y = torch.arange(30) % 3
    output = model(x).detach()
    slope = output.softmax(1) - nn.functional.one_hot(y)
    expected = 9 * (slope * output).sum(1).square().mean()
    result = FisherRaoNorm()(Subject(model, "cross_entropy", (x, y)))
    assert result.terms["squared"] == pytest.approx(float(expected))
    mean = (output.softmax(1) * output).sum(1, keepdim=True)
    variance = (output.softmax(1) * (output - mean).square()).sum(1).mean()
    assert result.terms["model"] ** 2 == pytest.approx(9 * float(variance))


@pytest.mark.parametrize(("weight", "words"), [(torch.nan, "'0.weight'"), (1e38, "outputs")])
def test_what_is_no_number_is_named(weight: float, words: str) -> None:
    model = nn.Sequential(nn.Linear(90, 3), nn.Linear(3, 2))
    nn.init.constant_(model[0].weight, weight)
    data = torch.randn(8, 90), torch.arange(8) % 2
    with pytest.raises(NotFiniteError, match=words):
        LargestHessianEigenvalue()(Subject(model, "cross_entropy", data))


def test_few_samples_may_be_of_one_class() -> None:
    data = torch.randn(40, 2), torch.arange(40) // 39
    subject = Subject(nn.Linear(2, 2), "cross_entropy", data)
    assert HessianTrace(samples=2)(subject).status == "estimate"
