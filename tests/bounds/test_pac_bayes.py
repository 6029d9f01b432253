"""The PAC-Bayes bounds on subjects: what they promise, about which model, and what they refuse."""

from __future__ import annotations

import copy
import json
import math
import sys

import pytest
import torch
from cases import convolution, mlp_classes, mlp_regression
from test_contracts import fixed_classifier
from torch import nn

from mindgap.bounds import PacBayesCatoni, PacBayesHoeffding, PacBayesKl, PacBayesQuadratic
from mindgap.cli import main
from mindgap.core.errors import InputError
from mindgap.core.subject import Subject
from mindgap.ops.pac_bayes.bounds import catoni, hoeffding, monte_carlo, small_kl
from mindgap.ops.pac_bayes.noisy_errors import perturbed_errors

BOUNDS = (PacBayesCatoni, PacBayesHoeffding, PacBayesKl, PacBayesQuadratic)


@pytest.mark.parametrize("bound", BOUNDS)
def test_confidence_is_shared_between_theorem_and_sampling(bound: type) -> None:
    subject, _ = fixed_classifier(100, 0)
    result = bound(delta=0.2, monte_carlo_share=0.25, draws=50, seed=3)(subject)
    mean = float(perturbed_errors(subject, 0.05, draws=50, seed=3).mean())
    assert result.terms["monte_carlo_mean"] == mean
    assert result.terms["empirical"] == monte_carlo(mean, 50, 0.05)
    assert result.terms["monte_carlo_slack"] == pytest.approx(result.terms["empirical"] - mean)
    assert result.terms["kl"] == 0
    theorem = bound(delta=0.15).evaluate(empirical=result.terms["empirical"], kl=0.0, samples=100)
    assert result.value == pytest.approx(float(theorem))
    assert result.status == "estimate"
    assert result.provenance["risk_of"] == "the model with noise on its weights"


def test_divergence_of_two_gaussians_of_one_width() -> None:
    subject = mlp_classes(torch.float64)
    squares = sum(
        float((p.detach() - subject.initial[name]).square().sum())
        for name, p in subject.model.named_parameters()
    )
    for scale in (0.05, 0.3):
        assert PacBayesKl(scale=scale)(subject).terms["kl"] == pytest.approx(
            squares / (2 * scale**2), rel=1e-12
        )


def test_known_risk_of_a_linear_classifier_with_noise() -> None:
    """The noisy model's risk, by Gaussian geometry, stays below on at least 1 - δ of the draws."""
    held = []
    for seed in range(100):
        subject, _ = fixed_classifier(100, seed)
        held.append(
            float(PacBayesKl(delta=0.2, scale=0.3, draws=400)(subject))
            >= noisy_risk(subject.model, 0.3)
        )
    assert sum(held) >= 80


def noisy_risk(model: nn.Linear, scale: float) -> float:
    source = torch.Generator().manual_seed(99)
    slopes = (model.weight[1] - model.weight[0]).detach() + scale * math.sqrt(2) * torch.randn(
        20_000, 2, generator=source, dtype=torch.float64
    )
    shift = scale * math.sqrt(2) * torch.randn(20_000, generator=source, dtype=torch.float64)
    norms = slopes.norm(dim=1)
    sides = [torch.special.ndtr(-(slopes[:, 0] + sign * shift) / norms) for sign in (1, -1)]
    return float(torch.stack(sides).mean())


def test_is_undefined_for_a_regression_and_without_initial_weights() -> None:
    for bound in BOUNDS:
        assert "regression loss has no upper limit" in bound()(mlp_regression(torch.float64)).reason
    subject = mlp_classes(torch.float64)
    bare = Subject(subject.model, subject.loss, subject.train)
    assert "before training" in PacBayesKl()(bare).reason


def test_statistics_learned_from_the_data_break_it() -> None:
    subject = convolution(torch.float64)
    assert PacBayesKl(draws=5)(subject).valid
    model = copy.deepcopy(subject.model)
    model.body[1].running_mean.add_(0.1)
    learned = Subject(model, subject.loss, subject.train, initial=subject.initial)
    result = PacBayesKl(draws=5)(learned)
    assert not result.valid
    assert "running_mean was learned from the data" in result.reason


def test_settings_reach_the_theorem() -> None:
    numbers = {"empirical": 0.1, "kl": 20.0, "samples": 1000}
    values = list(numbers.values())
    assert float(PacBayesHoeffding(eta=70.0).evaluate(**numbers)) == hoeffding(
        *values, 0.05, eta=70.0
    )
    assert float(PacBayesHoeffding(sharp=True).evaluate(**numbers)) == hoeffding(
        *values, 0.05, sharp=True
    )
    assert float(PacBayesCatoni(inverse_temperature=0.5).evaluate(**numbers)) == catoni(
        *values, 0.05, inverse_temperature=0.5
    )
    with pytest.raises(InputError, match="empirical must be a number from 0 to 1, got 7"):
        PacBayesKl().evaluate(empirical=7.0, kl=1.0, samples=10)


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        "bound",
        "pac-bayes-kl",
        "--empirical",
        "0.02",
        "--kl",
        "500",
        "--samples",
        "60000",
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", ["mindgap", *words])
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["value"] == pytest.approx(
        small_kl(0.02, 500.0, 60_000, 0.05)
    )
