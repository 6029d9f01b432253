"""Values that are no numbers: in weights, in a layer, in outputs, in losses."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.diagnoses import NotFinite
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe


class Root(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.sqrt()


def positive(*bad: int) -> Tensor:
    x = torch.ones(10, 2)
    x[list(bad)] = -1.0
    return x


@pytest.mark.parametrize("case", CASES)
def test_healthy_cases(case: str) -> None:
    assert NotFinite()(CASES[case](torch.float32)) is None


def test_a_buffer_is_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].running_var[0] = torch.inf
    x = positive()
    finding = NotFinite()(Subject(model, "mse", (x, x)))
    assert "'1.running_var'" in finding.sentence
    assert finding.evidence[0].value == 1


def test_the_first_layer_and_the_samples_are_named() -> None:
    model = nn.Sequential(nn.Identity(), Root(), nn.Linear(2, 1))
    x = positive(3, 7)
    finding = NotFinite()(Subject(model, "mse", (positive(), x[:, :1]), (x, x[:, :1])))
    assert finding.sentence == (
        "The outputs of layer '1' are not finite numbers for 20.0 % of the test samples."
    )
    assert list(finding.suspects.index) == [3, 7]
    assert not any(module._forward_hooks for module in model.modules())


def test_a_loss_that_overflows() -> None:
    model = nn.Linear(2, 2, bias=False)
    nn.init.constant_(model.weight, 1e25)
    x = positive()
    finding = NotFinite()(Subject(model, "mse", (x, x)))
    assert "loss of 100.0 % of the training samples" in finding.sentence


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plant_ends_all_other_checks(kind: str) -> None:
    found = diagnose(NotFinite.plant(healthy_recipe(kind).replace(epochs=1), seed=1))
    assert [finding.name for finding in found.findings] == ["not-finite"]
    assert sum(row.outcome == "found" for row in found.checked) == 1
