"""Other units: the factor, the offset, the sign, and the code that mends them."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Finding, Recipe, Subject
from mindgap.diagnoses import InputShift, OtherUnits
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    """A recipe that is trained just enough."""
    return healthy_recipe(kind, task, seed).replace(epochs=3 if kind == "sequence" else 8)


KINDS = (("image", "classification"), ("table", "regression"), ("sequence", "classification"))


def planted(recipe: Recipe, change: object) -> Subject:
    inputs, targets = recipe.test
    return fit(recipe.replace(test=(change(inputs), targets)), evaluate_every=0).subject()


def mended(finding: Finding, inputs: Tensor) -> Tensor:
    scope = {"torch": torch, "test_inputs": inputs.clone()}
    exec(finding.advice[0].code, scope)
    return scope["test_inputs"]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found_and_healthy_subjects_are_not(kind: str, task: str) -> None:
    recipe = quick(kind, task)
    finding = OtherUnits()(OtherUnits.plant(recipe))
    assert finding.severity == "wrong"
    assert finding.evidence[0].value == pytest.approx(255, rel=0.03)
    assert OtherUnits()(fit(recipe.replace(epochs=1), evaluate_every=0).subject()) is None


def test_raw_test_inputs_of_a_model_of_standardized_ones() -> None:
    recipe = quick("table")
    means, spreads = torch.arange(10.0), torch.linspace(2, 9, 10)
    subject = planted(recipe, lambda x: x * spreads + means)
    finding = OtherUnits()(subject)
    assert finding.severity == "wrong"
    back = mended(finding, subject.test.inputs[0])
    truth = recipe.test[0]
    assert float((back - truth).abs().mean()) < 0.15
    assert "falls from" in finding.sentences[0]


def test_one_column_in_other_units() -> None:
    recipe = quick("table", "regression")
    subject = planted(recipe, lambda x: torch.cat([x[:, :1] * 1000, x[:, 1:]], 1))
    finding = OtherUnits()(subject)
    assert "input 0" in finding.sentence
    assert "1e+03" in finding.sentence
    torch.testing.assert_close(mended(finding, subject.test.inputs[0]), recipe.test[0])


def test_inverted_images() -> None:
    recipe = quick("image")
    subject = planted(recipe, lambda x: 1 - x)
    finding = OtherUnits()(subject)
    assert "inverted" in finding.sentence
    assert finding.severity == "wrong"
    back = mended(finding, subject.test.inputs[0])
    assert float((back - recipe.test[0]).abs().mean()) < 0.05


def test_the_cause_is_named_before_the_shift() -> None:
    found = diagnose(OtherUnits.plant(quick("table")), diagnoses=[OtherUnits(), InputShift()])
    assert [finding.name for finding in found.findings] == ["other-units", "input-shift"]
    assert found.findings[1].explained_by == "other-units"


def test_a_model_that_does_not_mind_gets_a_note() -> None:
    recipe = quick("table")

    class Standardized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(nn.functional.normalize(x, dim=1))

    finding = OtherUnits()(planted(recipe.replace(model=Standardized), lambda x: 4 * x))
    assert finding.severity == "note"
    assert "not what this model fails on" in finding.sentences[0]


def test_noise_is_no_unit() -> None:
    random = torch.Generator().manual_seed(0)
    subject = planted(quick("table"), lambda x: x + 1.5 * torch.randn(x.shape, generator=random))
    finding = OtherUnits()(subject)
    assert finding is None or finding.severity == "note"


def test_constant_columns() -> None:
    x, t = torch.rand(300, 3), torch.rand(200, 3)
    x[:, 1], t[:, 1] = 0, 0
    y = x.sum(1, keepdim=True)
    assert (
        OtherUnits()(Subject(nn.Linear(3, 1), "mse", (x, y), (t, t.sum(1, keepdim=True)))) is None
    )


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_survive(case: str) -> None:
    OtherUnits()(CASES[case](torch.float32))
