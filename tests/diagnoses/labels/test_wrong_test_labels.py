"""Wrong test labels: the mirror image of wrong training labels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses import WrongLabels, WrongTestLabels
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("sequence", "classification"), ("table", "regression")],
)
def test_found_in_the_test_data_only(kind: str, task: str) -> None:
    subject = WrongTestLabels.plant(healthy_recipe(kind, task, 2).replace(epochs=0), seed=2)
    finding = WrongTestLabels()(subject)
    assert finding.severity == "wrong"
    assert finding.p_value < 1e-6
    assert finding.suspects.split == "test"
    assert finding.evidence[0].value == pytest.approx(0.15, abs=0.05)
    assert "test" in finding.advice[0].text
    assert WrongLabels()(subject) is None


def test_one_way_errors_are_laid_to_the_right_side() -> None:
    """Labels of one class given to the other move the boundary, so both splits look wrong."""
    random = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (1800,), generator=random)
    x = torch.randn(1800, 2, generator=random) + 3 * y[:, None]
    wrong = y.clone()
    ones = (y[:1200] == 1).nonzero().flatten()
    wrong[ones[::5]] = 0
    data = (x[:1200], wrong[:1200]), (x[1200:], y[1200:])
    subject = Subject(nn.Linear(2, 2), "cross_entropy", *data)
    found = diagnose(subject, diagnoses=["wrong-labels", "wrong-test-labels"]).findings
    assert found[0].name == "wrong-labels"
    assert all(finding.explained_by for finding in found[1:])


def test_clean_labels_are_not_accused() -> None:
    for seed in range(2):
        recipe = healthy_recipe("sequence", "regression", seed)
        assert WrongTestLabels()(Subject(nn.Flatten(), "mse", recipe.train, recipe.test)) is None
