"""Random outputs: any noise is seen, none is invented."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.diagnoses import BatchDependent, RandomOutputs
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


class Noisy(nn.Module):
    def __init__(self, size: float, rare: float = 0.0) -> None:
        super().__init__()
        self.layer, self.size, self.rare = nn.Linear(2, 2), size, rare

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.layer(inputs)
        if self.rare:
            return F.dropout(outputs, self.rare)
        return outputs + self.size * torch.randn_like(outputs)


def subject_of(model: nn.Module) -> Subject:
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    data = (x, (x[:, 0] > 0).long())
    return Subject(model, "cross_entropy", data, data)


@pytest.mark.parametrize("case", CASES)
def test_functions_are_not_accused(case: str) -> None:
    assert RandomOutputs()(CASES[case](torch.float32)) is None


def test_dropout_layers_are_off_in_evaluation_mode() -> None:
    subject = subject_of(nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2)))
    assert RandomOutputs()(subject) is None


def test_rare_noise_is_seen() -> None:
    """Eight samples, as a quick check would take, miss one value in two hundred."""
    assert RandomOutputs()(subject_of(Noisy(0.0, rare=0.005))) is not None


def test_noise_that_decides_nothing_is_a_note() -> None:
    model = Noisy(1e-3)
    with torch.no_grad():
        model.layer.weight.copy_(torch.tensor([[-9.0, 0.0], [9.0, 0.0]]))
        model.layer.bias.zero_()
    finding = RandomOutputs()(subject_of(model))
    assert finding.severity == "note"


def test_share_of_changing_predictions_is_a_count() -> None:
    subject = subject_of(Noisy(5.0))
    finding = RandomOutputs()(subject)
    assert finding.severity == "wrong"
    assert finding.evidence[0].value == len(finding.suspects.index) / 400
    changes = finding.suspects.columns["change"]
    assert list(changes) == sorted(changes, reverse=True)
    assert BatchDependent()(subject) is None  # noise is one diagnosis, not two


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plant(kind: str) -> None:
    recipe = healthy_recipe(kind).replace(epochs=3)
    assert RandomOutputs()(RandomOutputs.plant(recipe, seed=2)).severity == "wrong"
    assert RandomOutputs()(fit(recipe, evaluate_every=0).subject()) is None
