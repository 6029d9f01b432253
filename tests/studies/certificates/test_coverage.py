"""Coverage of certificates: risks against brute force, and failures that are counted."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from mindgap.core.recipe import Recipe
from mindgap.core.study import Trial
from mindgap.ops.pac_bayes.bounds import maurer_constant
from mindgap.studies.certificates import coverage
from mindgap.studies.certificates.coverage import CertificateCoverage
from mindgap.studies.certificates.problems import (
    ATTACKS,
    FEATURES,
    FEW,
    NOISE,
    PROBLEMS,
    Draw,
    coins,
    combinations,
    drawn,
    half_space,
    half_space_risk,
    sensitive_risk,
    tight_risk,
    without_error,
)
from mindgap.training.certify import material
from mindgap.training.certify.job import certify


def test_risk_from_the_angle_equals_the_error_on_many_samples() -> None:
    weights = torch.randn(20, 2, FEATURES, generator=torch.Generator().manual_seed(1))
    inputs, labels = half_space(200_000, torch.Generator().manual_seed(2))
    said = torch.einsum("kcf,nf->knc", weights, inputs).argmax(2)
    errors = (said != labels).double().mean(1)
    for one, error in zip(weights, errors, strict=True):
        assert half_space_risk(one[None]) == pytest.approx(float(error), abs=0.005)
    assert half_space_risk(weights) == pytest.approx(float(errors.mean()), abs=0.002)


def test_labels_are_flipped_at_the_stated_rate_and_coins_are_fair() -> None:
    inputs, labels = half_space(100_000, torch.Generator().manual_seed(0))
    assert float(((inputs[:, 0] > 0) != labels).double().mean()) == pytest.approx(NOISE, abs=0.005)
    inputs, labels = coins(100_000, torch.Generator().manual_seed(0))
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
    """A certificate of zero fails in every draw, a certificate of one in none."""
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


def trial_of(problem: str) -> Trial:
    case = next(case for case in combinations() if case[0] == problem)
    names = ("problem", "prior", "posterior", "first")
    return Trial(parameters=dict(zip(names, (*case, 0), strict=True)))


class TestTightProblems:
    STUDY = CertificateCoverage(draws=60, block=60, delta=0.04)

    @pytest.mark.parametrize("problem", ["tight", "sensitive"])
    def test_the_risk_is_the_rate_of_wrong_labels(self, problem: str) -> None:
        wrong = []
        for seed in range(300):
            case = PROBLEMS[problem](Draw(samples=0, delta=0.04, seed=seed))
            inputs, labels = case.subject.train
            wrong.append((inputs.argmax(1) != labels).double().mean())
        risk = {"tight": tight_risk, "sensitive": sensitive_risk}[problem](0.04)
        assert case.risk(None) == risk
        assert float(torch.stack(wrong).mean()) == pytest.approx(risk, abs=0.05)

    def test_a_certificate_without_errors_is_just_below_the_tight_risk(self) -> None:
        for seed in range(1000):
            case = PROBLEMS["tight"](Draw(samples=0, delta=0.04, seed=seed))
            inputs, labels = case.subject.train
            if torch.equal(inputs.argmax(1), labels):
                break
        settings = {**case.settings, "delta": 0.04, "monte_carlo_delta": 0.004, "prior": "initial"}
        found = certify(case.subject, **settings)
        assert found.error == 0
        bound = found.bounds["kl"]
        assert bound == pytest.approx(without_error(0.04), abs=1e-6)
        assert bound < case.risk(found) < bound + 0.002
        # The theorem allows it with probability δ/ξ(n) at most.
        assert 0.5 < (1 - case.risk(found)) ** FEW / (0.036 / maurer_constant(FEW)) < 1

    def test_a_wrong_delta_shows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        trial = trial_of("sensitive")
        honest = self.STUDY.run(trial)
        assert honest["failed"] == 0
        assert "none fails too often" in self.STUDY.summarize([(trial, honest)]).notes[0]

        def inflated(*given, delta, monte_carlo_delta, **named):
            named |= {"delta": 20 * delta, "monte_carlo_delta": 20 * monte_carlo_delta}
            return certify(*given, **named)

        monkeypatch.setattr(coverage, "certify", inflated)
        wrong = self.STUDY.run(trial)
        assert wrong["failed"] > 2 * 0.04 * wrong["draws"]
        assert "some fail too often" in self.STUDY.summarize([(trial, wrong)]).notes[0]


class TestFixedModels:
    STUDY = CertificateCoverage(draws=200, block=200, delta=0.04)

    def test_a_held_out_bound_is_tight(self) -> None:
        trial = trial_of("tight, held-out")
        assert 0 < self.STUDY.run(trial)["failed"] <= 0.04 * 200

    @pytest.mark.parametrize("mode", ["held-out", "progressive"])
    def test_the_exact_risk_of_fixed_models_is_that_of_many_samples(self, mode: str) -> None:
        case = PROBLEMS[f"half-space, {mode}"](Draw(samples=100, delta=0.04, seed=0))
        found = certify(case.subject, **case.settings)
        inputs, labels = half_space(100_000, torch.Generator().manual_seed(5))
        error = float((found.model(inputs).argmax(1) != labels).double().mean())
        assert case.risk(found) == pytest.approx(error, abs=0.01)


class TestAttacks:
    STUDY = CertificateCoverage(draws=2, block=2)

    @pytest.mark.parametrize("attack", ATTACKS)
    def test_none_gets_a_valid_certificate(self, attack: str) -> None:
        found = self.STUDY.run(trial_of(attack))
        assert (found["draws"], found["valid"], found["failed"]) == (2, 0, 0)

    @pytest.mark.parametrize(
        ("attack", "check", "blind"),
        [
            ("leaked weights", "leaking_weights", lambda _: ""),
            ("copies in single precision", "check_shared", lambda *_: []),
            ("state outside the weights", "check_state", lambda _: None),
        ],
    )
    def test_each_would_succeed_without_its_check(
        self, attack: str, check: str, blind: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(material, check, blind)
        trial = trial_of(attack)
        found = self.STUDY.run(trial)
        assert found["failed"] == 2
        assert f"{attack} gets valid" in self.STUDY.summarize([(trial, found)]).notes[0]


def test_the_table_reports_a_bound_that_fails_too_often() -> None:
    def notes(failed: int) -> str:
        record = {
            "risk": 40,
            "error": 30,
            "certificate": 60,
            "KL": 1,
            "draws": 100,
            "certified": 100,
            "valid": 100,
            "failed": failed,
            "error below": 70,
        }
        case = {"problem": "coins", "prior": "learned", "posterior": "uniform", "first": 0}
        table = CertificateCoverage().summarize([(Trial(parameters=case), record)])
        assert table.rows[0][3:8] == (100, 0.4, 0.3, 0.6, 0.01)
        assert table.rows[0][8:11] == ("70 %", 100, failed)
        return table.notes[0]

    assert "none fails too often (at most 4 % of the draws)" in notes(4)
    assert "some fail too often" in notes(5)
