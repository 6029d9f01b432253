"""Ignored classes: against counts by hand, and told from models that are merely too small."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.diagnoses import IgnoredClass
from mindgap.nets import MLP
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


class Table(nn.Module):
    """Predicts the class that its input names."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(classes))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight[inputs[:, 0].long()]


def subject_of(labels: Tensor, predictions: Tensor) -> Subject:
    data = (predictions[:, None].float(), labels)
    return Subject(Table(3), "cross_entropy", data)


def test_p_value_is_the_binomial_tail() -> None:
    labels = torch.arange(150) % 3
    predictions = torch.where(labels == 1, 0, labels)
    predictions[1] = 1  # one of fifty is recognized
    finding = IgnoredClass()(subject_of(labels, predictions))
    tail = 0.8**50 + 50 * 0.2 * 0.8**49
    assert finding.p_value == pytest.approx(3 * tail)
    assert "hardly ever" in finding.sentence
    assert finding.evidence[0].value == 1 / 50
    assert set(finding.suspects.index) == set(range(1, 150, 3))


def test_few_samples_are_no_proof() -> None:
    labels = torch.tensor([0, 2] * 50 + [1] * 6)
    finding = IgnoredClass()(subject_of(labels, torch.where(labels == 1, 0, labels)))
    assert finding.p_value > 0.01


def test_one_recognized_in_ten_is_not_ignored() -> None:
    labels = torch.arange(150) % 3
    predictions = torch.where(labels == 1, 0, labels)
    predictions[1:16:3] = 1
    assert IgnoredClass()(subject_of(labels, predictions)) is None


def test_a_class_that_the_test_data_lack_is_nobodys_loss() -> None:
    labels = torch.arange(150) % 3
    predictions = torch.where(labels == 1, 0, labels)
    train = (predictions[:, None].float(), labels)
    test = (torch.tensor([[0.0], [2.0]]), torch.tensor([0, 2]))
    assert IgnoredClass()(Subject(Table(3), "cross_entropy", train, test)) is None


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plant(kind: str) -> None:
    finding = IgnoredClass()(IgnoredClass.plant(healthy_recipe(kind), seed=2))
    assert finding.severity == "wrong"
    assert "class '2'" in finding.sentence


def test_a_model_of_two_units_is_too_small_and_does_not_ignore() -> None:
    """It loses several of ten classes, and fits the others badly too."""
    for seed in range(3):
        recipe = healthy_recipe("image", seed=seed).replace(model=lambda: MLP((64, 2, 10)))
        finding = IgnoredClass()(fit(recipe, seed=seed, evaluate_every=0).subject())
        assert finding is None or finding.severity == "note"
