"""PAC-Bayes and sharpness measures against closed forms, loops and a numerical minimum."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from cases import fitted_classes
from scipy import optimize, stats
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.measures import (
    PacBayesComplexity,
    PacBayesFlatness,
    SharpnessComplexity,
    SharpnessFlatness,
)
from mindgap.measures.sharpness.noise_measure import gaussian_divergence
from mindgap.measures.sharpness.noise_search import Search
from mindgap.measures.sharpness.pac_bayes_complexity import published_magnitude


def identity_classifier(size: float = 1.0) -> Subject:
    """Margins of ``size`` on unit vectors: Gaussian noise of deviation σ errs with Φ(−size / √2σ)."""
    model = nn.Linear(2, 2, bias=False, dtype=torch.double)
    model.weight.data.copy_(size * torch.eye(2))
    data = torch.eye(2, dtype=torch.double), torch.arange(2)
    initial = {"weight": torch.full((2, 2), 0.25, dtype=torch.double)}
    return Subject(model, "cross_entropy", data, initial=initial)


@pytest.mark.parametrize("size", [0.1, 1.0])
def test_the_noise_is_a_standard_deviation(size: float) -> None:
    """With σ² in its place the answer would be another one, unless it were one."""
    true = size / (math.sqrt(2) * stats.norm.isf(0.1))
    found = Search(draws=4000).gaussian(identity_classifier(size))
    assert found.converged
    assert found.rise == pytest.approx(0.1, abs=0.002)
    assert found.scale == pytest.approx(true, abs=4 * found.standard_error)
    assert 0.001 < found.standard_error / found.scale < 0.05


def test_the_reported_error_is_the_spread_over_seeds() -> None:
    rows = [
        Search(draws=64, seed=seed).gaussian(fitted_classes(torch.double)) for seed in range(24)
    ]
    spread = np.std([row.scale for row in rows], ddof=1)
    told = np.median([row.standard_error for row in rows])
    assert 0.5 < told / spread < 2


def test_the_search_equals_a_loop_over_copies() -> None:
    subject, search = fitted_classes(torch.double), Search(draws=8, magnitude=True)
    found = search.gaussian(subject)
    batch = subject.train.take(torch.arange(len(subject.train)))
    source, errors = torch.Generator().manual_seed(0), []
    for _ in range(8):
        model = copy.deepcopy(subject.model)
        place = nn.utils.parameters_to_vector(model.parameters()).detach()
        noise = torch.randn(len(place), generator=source, dtype=torch.double)
        sizes = torch.tensor([math.hypot(found.scale * float(w), 1e-3) for w in place])
        nn.utils.vector_to_parameters(place + sizes.double() * noise, model.parameters())
        wrong = model(batch.inputs[0]).argmax(1) != batch.target
        errors.append(float(wrong.double().mean()))
    assert np.mean(errors) - found.error == pytest.approx(found.rise, abs=1e-12)
    assert found.rise <= 0.1 < found.rise + 1 / 48


def test_the_worst_box_of_a_linear_model() -> None:
    """One of two samples flips when both its logits move by half the margin."""
    assert float(SharpnessFlatness()(identity_classifier())) == pytest.approx(4.0, rel=1e-3)
    # With magnitudes only the diagonal moves, and by all of its weight: 1 = α' + ε + ε.
    found = Search(magnitude=True).worst(identity_classifier())
    assert found.scale == pytest.approx(1 - 2e-3, rel=1e-3)


def divergence(shift: Tensor, sizes: Tensor, variance: float) -> float:
    """KL between Gaussians, weight by weight."""
    parts = [
        0.5 * (s**2 / variance + d**2 / variance - 1 + math.log(variance / s**2))
        for d, s in zip(shift.tolist(), sizes.tolist(), strict=True)
    ]
    return math.fsum(parts)


def test_the_divergence_is_the_numerical_minimum() -> None:
    shift, sizes = torch.randn(30, dtype=torch.double), torch.rand(30, dtype=torch.double) + 0.01
    best = optimize.minimize_scalar(
        lambda log: divergence(shift, sizes, math.exp(log)), bounds=(-10, 10), method="bounded"
    )
    assert gaussian_divergence(shift, sizes) == pytest.approx(best.fun, rel=1e-8)


def test_the_published_form_is_half_a_divergence_for_one_center_only() -> None:
    torch.manual_seed(0)
    place, start = torch.randn(200, dtype=torch.double), torch.randn(200, dtype=torch.double)
    zero, scale = torch.zeros_like(place), 0.3

    def half(center: Tensor, noise: Tensor) -> float:
        sizes = (scale**2 * noise.square() + 1e-6).sqrt()
        return gaussian_divergence(place - center, sizes) / 2

    found = published_magnitude(place, start, start, scale)
    assert found == pytest.approx(half(start, place - start), rel=1e-12)
    wrong = published_magnitude(place, zero, start, scale)
    # Distances from the start are longer than the weights, so the mixed form is too small.
    assert wrong < min(half(zero, place), half(zero, place - start))


@pytest.mark.parametrize("origin", ["zero", "initial"])
def test_complexities_by_hand(origin: str) -> None:
    subject = identity_classifier()
    center = 0.25 if origin == "initial" else 0.0
    shift = torch.tensor([1 - center, -center, -center, 1 - center], dtype=torch.double)
    found = PacBayesComplexity(origin=origin)(subject)
    sigma = found.terms["scale"]
    kl = 2 * math.log(1 + float(shift.square().sum()) / (4 * sigma**2))
    assert found.terms["divergence"] == pytest.approx(kl, rel=1e-12)
    assert float(found) == pytest.approx(math.sqrt((kl / 2 + math.log(2 / sigma) + 10) / 2))
    published = PacBayesComplexity(origin=origin, as_published=True)(subject)
    slip = published.terms["scale"]  # its noise has a standard deviation of σ²
    assert slip == pytest.approx(math.sqrt(sigma), rel=1e-3)
    plain, sigma = float(shift.square().sum()) / (4 * slip**2), slip
    assert published.terms["divergence"] == pytest.approx(kl, rel=1e-2)
    assert float(published) == pytest.approx(math.sqrt((plain + math.log(2 / sigma) + 10) / 2))
    sharp = SharpnessComplexity(origin=origin)(subject)
    small = sharp.terms["scale"] / math.sqrt(2 * math.log(8))
    kl = 2 * math.log(1 + float(shift.square().sum()) / (4 * small**2))
    assert float(sharp) == pytest.approx(math.sqrt((kl / 2 + math.log(2 / small) + 10) / 2))


def test_magnitudes_make_flatness_nearly_blind_to_rescaling() -> None:
    def changes(measure: object) -> float:
        subject = fitted_classes(torch.double)
        before = float(measure(subject))
        with torch.no_grad():
            first, second = (m for m in subject.model.modules() if isinstance(m, nn.Linear))
            first.weight.mul_(8), first.bias.mul_(8), second.weight.div_(8)
        return float(measure(subject)) / before

    assert not 0.8 < changes(PacBayesFlatness()) < 1.25
    assert 0.95 < changes(PacBayesFlatness(magnitude=True)) < 1.05


def test_a_search_is_shared_and_a_failed_one_says_so() -> None:
    subject = fitted_classes(torch.double)
    calls = []
    forward = subject.model.forward
    subject.model.forward = lambda x: calls.append(1) or forward(x)
    PacBayesComplexity()(subject)
    count = len(calls)
    PacBayesComplexity(origin="initial")(subject)
    PacBayesFlatness()(subject)
    assert len(calls) == count
    constant = identity_classifier()
    constant.model.weight.data.zero_()
    result = SharpnessFlatness(rise=0.9)(constant)
    assert result.value is None
    assert "needs a noise that raises the training error" in result.reason


def test_initial_weights_are_asked_for() -> None:
    subject = identity_classifier()
    subject.initial = None
    assert "before training" in PacBayesComplexity(origin="initial")(subject).reason
    assert (
        "before training" in PacBayesComplexity(magnitude=True, as_published=True)(subject).reason
    )
    assert PacBayesComplexity(magnitude=True)(subject).value is not None
