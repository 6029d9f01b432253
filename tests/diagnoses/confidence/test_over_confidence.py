"""Over-confidence: against a grid of temperatures, healthy nets, yes/no labels, the pasted code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from healthy import healthy
from torch import nn

from mindgap.core import InputError, Subject
from mindgap.diagnoses.confidence.over_confidence import OverConfidence, calibrations, scaled
from mindgap.ops.evidence.calibration import (
    as_classes,
    best_temperature,
    calibration,
    calibration_error,
    p_excess,
)
from mindgap.studies.diagnoses.healthy import healthy_recipe


def logits_of(
    factor: float, samples: int = 2000, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose true temperature is the factor."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, 3, generator=random)
    labels = torch.multinomial(F.softmax(logits, 1), 1, generator=random).flatten()
    return factor * logits, labels


def subject_of(factor: float, train_factor: float | None = None) -> Subject:
    train = logits_of(factor if train_factor is None else train_factor, seed=1)
    return Subject(nn.Identity(), "cross_entropy", train, logits_of(factor))


def test_temperature_is_the_best_of_a_grid() -> None:
    logits, labels = logits_of(2.0)
    grid = torch.linspace(0.5, 4, 701)
    losses = torch.stack([F.cross_entropy(logits / t, labels) for t in grid])
    found = best_temperature(logits.double(), labels)
    assert found == pytest.approx(float(grid[losses.argmin()]), abs=0.01)
    assert best_temperature(logits.double()[:, None], labels[:, None]) == found


def test_calibrated_logits_are_not_accused() -> None:
    p_values = []
    for seed in range(40):
        data = logits_of(1.0, 500, seed)
        found = calibration(Subject(nn.Identity(), "cross_entropy", data), "train")
        p_values.append(min(found.p_over, found.p_under))
        assert OverConfidence()(Subject(nn.Identity(), "cross_entropy", data, data)) is None
    assert sum(p < 0.05 for p in p_values) <= 4  # both tails, bounded: at most a tenth


def test_p_value_is_that_of_the_binomial_if_rates_are_equal() -> None:
    from scipy.stats import binom

    correct = torch.cat([torch.zeros(30), torch.ones(70)]).double()
    assert p_excess(torch.full((100,), 0.8).double(), correct) == pytest.approx(
        binom.sf(29, 100, 0.2)
    )
    assert p_excess(torch.full((100,), 0.6).double(), correct) == 1.0


def test_calibration_error_is_debiased() -> None:
    random = torch.Generator().manual_seed(0)
    squares = []
    for _ in range(50):
        confidence = 0.5 + 0.5 * torch.rand(300, generator=random)
        correct = (torch.rand(300, generator=random) < confidence).double()
        squares.append(calibration_error(confidence.double(), correct)[0])
    # The plain error of 15 bins of 20 samples would be about 0.1 here.
    assert sum(squares) / 50 < 0.04
    value, interval = calibration_error(torch.full((900,), 0.9), torch.arange(900) % 2 + 0.0)
    assert interval.low < 0.4 < interval.high
    assert value == pytest.approx(0.4, abs=0.01)


def test_scaled_logits_are_the_cause_and_the_code_repairs_them() -> None:
    subject = subject_of(3.0)
    finding = OverConfidence()(subject)
    assert finding is not None
    assert finding.severity == "wrong"
    assert finding.p_value < 1e-9
    names = {row.name: row for row in finding.evidence}
    assert names["best temperature (test)"].value == pytest.approx(3, rel=0.1)
    scope = {
        "model": subject.model,
        "inputs": subject.split("test").take(torch.arange(2000)).inputs[0],
    }
    exec(finding.advice[0].code, scope)
    repaired = Subject(nn.Identity(), "cross_entropy", (scope["logits"], subject.targets("test")))
    assert abs(calibration(repaired, "train").excess) < 0.02
    assert "right" in str(finding.charts[0])


def test_over_confidence_on_test_data_alone_only_accompanies() -> None:
    finding = OverConfidence()(subject_of(3.0, train_factor=0.8))
    assert finding is not None
    assert finding.severity == "note"


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_healthy_nets_and_plants(kind: str) -> None:
    recipe = healthy_recipe(kind)  # type: ignore[arg-type]
    assert OverConfidence()(healthy(kind)) is None
    finding = OverConfidence()(OverConfidence.plant(recipe, seed=3))
    assert finding is not None
    assert finding.severity == "wrong"


def test_one_logit_and_many_labels() -> None:
    random = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3000, 1, generator=random)
    labels = (torch.rand(3000, 1, generator=random) < logits.sigmoid()).float()
    one = Subject(nn.Identity(), "bce", (4 * logits, labels), (4 * logits, labels))
    finding = OverConfidence()(one)
    assert finding is not None
    assert finding.severity == "wrong"
    many = Subject(
        nn.Identity(),
        "bce",
        (logits.view(-1, 3), labels.view(-1, 3)),
        (logits.view(-1, 3), labels.view(-1, 3)),
    )
    assert OverConfidence()(many) is None
    assert as_classes(many, many.outputs("train"), many.targets("train"))[0].shape == (1000, 3, 2)


def test_few_samples_and_regressions_are_refused() -> None:
    data = logits_of(3.0, 20)
    with pytest.raises(InputError, match="50 test samples"):
        calibrations(Subject(nn.Identity(), "cross_entropy", data, data))
    x = torch.linspace(-1, 1, 80)[:, None]
    with pytest.raises(InputError, match="regression"):
        calibrations(Subject(nn.Identity(), "mse", (x, x), (x, x)))


def test_scaling_keeps_predictions() -> None:
    subject = subject_of(1.0)
    larger = scaled(subject, 5.0)
    assert torch.equal(larger.predictions("test"), subject.predictions("test"))
