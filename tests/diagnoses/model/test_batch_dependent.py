"""Batch-dependent outputs: statistics of the batch, and models that refuse single samples."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.diagnoses import BatchDependent, StaleBatchNorm
from mindgap.nets import MLP
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


class Centered(nn.Module):
    """Subtracts the mean of the batch, as a normalization by hand does."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(0)


class Squeezed(nn.Module):
    """Loses the axis of the batch if it has one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs).squeeze()


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1)


@pytest.mark.parametrize("case", CASES)
def test_functions_are_not_accused(case: str) -> None:
    assert BatchDependent()(CASES[case](torch.float32)) is None


def test_running_statistics_are_fine() -> None:
    recipe = healthy_recipe("table").replace(
        model=lambda: MLP(widths=(10, 32, 3), norm="batch"), epochs=2, batch_size=50
    )
    assert BatchDependent()(fit(recipe, evaluate_every=0).subject()) is None


def test_a_mean_of_the_batch_is_found() -> None:
    subject = Subject(nn.Sequential(Centered(), nn.Linear(2, 1)), "mse", data(), data())
    finding = BatchDependent()(subject)
    assert finding.severity == "wrong"
    assert finding.evidence[0].value == len(finding.suspects.index) / 200


def test_a_model_that_cannot_take_one_sample_is_a_note() -> None:
    finding = BatchDependent()(Subject(Squeezed(), "mse", data(), data()))
    assert finding.severity == "note"


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plant_is_not_stale(kind: str) -> None:
    subject = BatchDependent.plant(healthy_recipe(kind).replace(epochs=3), seed=1)
    assert BatchDependent()(subject).severity == "wrong"
    assert StaleBatchNorm()(subject) is None
