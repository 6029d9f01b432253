"""Permuted test classes: the mapping, its words, and when it is not said."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Finding, Subject
from mindgap.diagnoses import PermutedTestClasses
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def look(train: Tensor, test: Tensor, predicted: Tensor, known: Tensor) -> Finding | None:
    """Train and test labels, and what a model predicts for either."""
    data = (torch.eye(5)[known], train), (torch.eye(5)[predicted], test)
    return PermutedTestClasses()(Subject(nn.Identity(), "cross_entropy", *data))


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_pasted_mapping_restores_the_labels(kind: str) -> None:
    recipe = healthy_recipe(kind, seed=1).replace(epochs=5)
    for strength in (1.0, 0.2):
        finding = PermutedTestClasses()(PermutedTestClasses.plant(recipe, 1, strength))
        assert finding.severity == "wrong"
        assert finding.p_value < 1e-6
        planted = PermutedTestClasses.plant(recipe.replace(epochs=0), 1, strength)
        scope = {"torch": torch, "test_targets": planted.targets("test")}
        exec(finding.advice[0].code, scope)
        assert torch.equal(scope["test_targets"], recipe.test[1])
    assert PermutedTestClasses()(fit(recipe, seed=1).subject()) is None


def test_confused_classes_are_no_renamed_ones() -> None:
    labels = torch.arange(400) % 5
    confused = torch.where((labels == 1) & (torch.arange(400) % 3 > 0), 2, labels)
    assert look(labels, labels, confused, confused) is None  # the training data are confused alike


def test_two_swapped_classes_of_five() -> None:
    labels = torch.arange(400) % 5
    swapped = torch.tensor([0, 3, 2, 1, 4])[labels]
    finding = look(labels, swapped, labels, labels)
    assert finding.sentence == "The test labels swap classes: 1 means 3, 3 means 1."
    assert finding.charts[0].kind == "heatmap"


def test_few_samples_are_not_enough() -> None:
    labels = torch.arange(10) % 5
    assert look(labels, torch.tensor([1, 0, 2, 3, 4])[labels], labels, labels) is None
