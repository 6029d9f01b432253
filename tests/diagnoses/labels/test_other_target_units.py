"""Test targets in other units: factors, offsets and logarithms, told apart from real differences."""

from __future__ import annotations

import functools

import pytest
import torch

from mindgap.core import Subject
from mindgap.diagnoses import OtherTargetUnits
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


@functools.cache
def fitted(seed: int = 1) -> Subject:
    return fit(healthy_recipe("table", "regression", seed=seed), seed=seed).subject()


def with_targets(targets: torch.Tensor) -> Subject:
    subject = fitted()
    inputs = subject.test.take(torch.arange(len(subject.test))).inputs[0]
    return Subject(subject.model, "mse", subject.train, (inputs, targets))


@pytest.mark.parametrize(
    ("factor", "offset", "said"),
    [(1000.0, 0.0, "about 1000 times"), (0.01, 5.0, "plus 5"), (1.0, 40.0, "plus 40")],
)
def test_factors_and_offsets_are_named_and_mended(factor: float, offset: float, said: str) -> None:
    own = fitted().targets("test")
    finding = OtherTargetUnits()(with_targets(factor * own + offset))
    assert said in finding.sentence
    assert finding.severity == "wrong"
    as_it_is, mapped, _ = (row.value for row in finding.evidence)
    assert mapped < 0.5 * as_it_is
    scope = {"torch": torch, "test_targets": factor * own + offset}
    exec(finding.advice[0].code, scope)
    errors = [
        float((fitted().outputs("test") - y).square().mean()) for y in (scope["test_targets"], own)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.3)


def test_it_comes_before_what_it_causes() -> None:
    found = diagnose(with_targets(1000.0 * fitted().targets("test")))
    assert found.findings[0].name == "other-target-units"


def test_exponentials_are_named() -> None:
    finding = OtherTargetUnits()(with_targets(fitted().targets("test").exp()))
    assert finding.sentence == "The training targets are logarithms, the test targets are not."
    assert ".log" in finding.advice[0].code


def test_healthy_and_really_larger_targets_are_not_accused() -> None:
    subject = fitted()
    assert OtherTargetUnits()(subject) is None
    # Samples with larger targets: the model predicts these, so no map would mend anything.
    targets = subject.targets("test")[:, 0]
    high = (targets > targets.quantile(0.7)).nonzero().flatten()
    inputs = subject.test.take(high).inputs[0]
    shifted = Subject(subject.model, "mse", subject.train, (inputs, targets[high][:, None]))
    assert OtherTargetUnits()(shifted) is None


def test_targets_that_have_nothing_to_do_with_the_inputs_have_no_unit() -> None:
    own = fitted().targets("test")
    mixed = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(0))]
    assert OtherTargetUnits()(with_targets(1000.0 * mixed)) is None


def test_classes_have_no_units() -> None:
    subject = fit(healthy_recipe("table", seed=1).replace(epochs=1), seed=1).subject()
    assert "numbers" in OtherTargetUnits().missing(subject)


def test_a_model_that_predicts_logarithms_of_targets_in_equal_units_is_not_accused() -> None:
    x = torch.linspace(0, 4, 600)[torch.randperm(600, generator=torch.Generator().manual_seed(0))]
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(1.0)
        model.bias.zero_()
    data = x[:, None], x.exp()[:, None]
    parts = [tuple(part[rows] for part in data) for rows in (slice(400), slice(400, None))]
    assert OtherTargetUnits()(Subject(model, "mse", *parts)) is None
