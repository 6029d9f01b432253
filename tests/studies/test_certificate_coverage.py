"""The study that counts how often certificates fail: its risks against brute force, and that it can fail."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from mindgap.core.recipe import Recipe
from mindgap.core.study import Trial
from mindgap.studies.certificates import coverage
from mindgap.studies.certificates.coverage import (
    FEATURES,
    NOISE,
    PROBLEMS,
    CertificateCoverage,
    drawn,
    half_space,
    half_space_risk,
)
from mindgap.training.certify.job import certify


def test_the_risk_by_the_angle_is_the_error_on_many_samples() -> None:
    weights = torch.randn(20, 2, FEATURES, generator=torch.Generator().manual_seed(1))
    inputs, labels = half_space(200_000, torch.Generator().manual_seed(2))
    said = torch.einsum("kcf,nf->knc", weights, inputs).argmax(2)
    errors = (said != labels).double().mean(1)
    for one, error in zip(weights, errors, strict=True):
        assert half_space_risk(one[None]) == pytest.approx(float(error), abs=0.005)
    assert half_space_risk(weights) == pytest.approx(float(errors.mean()), abs=0.002)


def test_labels_are_turned_as_often_as_said_and_coins_are_fair() -> None:
    inputs, labels = half_space(100_000, torch.Generator().manual_seed(0))
    assert float(((inputs[:, 0] > 0) != labels).double().mean()) == pytest.approx(NOISE, abs=0.005)
    inputs, labels = PROBLEMS["coins"][0](100_000, torch.Generator().manual_seed(0))
    assert float(((inputs[:, 0] > 0) != labels).double().mean()) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("posterior", ["gaussian", "uniform"])
def test_draws_come_from_the_posterior(posterior) -> None:
    data = half_space(60, torch.Generator().manual_seed(0))
    recipe = Recipe(
        model=lambda: nn.Linear(FEATURES, 2, bias=False), train=data, epochs=2, batch_size=20
    )
    found = certify(recipe, posterior=posterior, scale=0.3, epochs=2, draws=1000)
    weights = drawn(found, 20_000, 3)
    assert weights.shape == (20_000, 2, FEATURES)
    assert torch.allclose(weights.mean(0).flatten(), found.model.means(), atol=0.01)
    spread = found.model.scales().detach() * (1 if posterior == "gaussian" else 3**-0.5)
    assert torch.allclose(weights.std(0).flatten(), spread, rtol=0.05)


def test_failures_are_counted(monkeypatch) -> None:
    """A certificate of nought fails at every draw; a certificate of one at none."""
    study = CertificateCoverage().tiny()
    trial = Trial(
        parameters={"problem": "coins", "prior": "initial", "posterior": "gaussian", "first": 0}
    )
    honest = study.run(trial)
    assert honest["draws"] == 2
    assert honest["risk"] == 1.0  # one half, twice
    for bound, failed in ((0.0, 2), (1.0, 0)):
        monkeypatch.setattr(
            coverage,
            "certify",
            lambda *given, bound=bound, **named: dataclasses.replace(
                certify(*given, **named), bound=bound
            ),
        )
        assert study.run(trial)["failed"] == failed


def test_the_table_tells_a_bound_that_fails_too_often() -> None:
    def notes(failed: int) -> str:
        record = {
            "risk": 40,
            "error": 30,
            "certificate": 60,
            "KL": 1,
            "draws": 100,
            "failed": failed,
            "error below": 70,
        }
        case = {"problem": "coins", "prior": "learned", "posterior": "uniform", "first": 0}
        table = CertificateCoverage().summarize([(Trial(parameters=case), record)])
        assert table.rows[0][3:8] == (100, 0.4, 0.3, 0.6, 0.01)
        assert table.rows[0][8:10] == ("70 %", failed)
        return table.notes[0]

    assert "none does more often than it may (at most 10% of the draws)" in notes(10)
    assert "some do more often than they may" in notes(11)
