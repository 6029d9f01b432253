"""Shuffled test targets: found, told apart from foreign inputs and from weak models."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Recipe, Subject
from mindgap.diagnoses import ShuffledTestLabels
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    return healthy_recipe(kind, task, seed).replace(epochs=4)


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("sequence", "classification"), ("table", "regression")],
)
def test_found_if_planted_and_only_then(kind: str, task: str) -> None:
    finding = ShuffledTestLabels()(ShuffledTestLabels.plant(quick(kind, task), seed=1))
    assert finding.severity == "wrong"
    assert finding.p_value < 1e-10
    known, left = (row.value for row in finding.evidence)
    assert known > 0.4
    assert abs(left) < 0.15
    assert ShuffledTestLabels()(fit(quick(kind, task), seed=1).subject()) is None


def test_foreign_inputs_are_not_shuffled_labels() -> None:
    recipe = quick("image")
    noise = torch.rand(recipe.test[0].shape, generator=torch.Generator().manual_seed(0))
    subject = fit(recipe.replace(test=(noise, recipe.test[1])), seed=0).subject()
    assert ShuffledTestLabels()(subject) is None


def test_unlearned_data_say_nothing() -> None:
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(600, 4, generator=random), torch.randint(0, 3, (600,), generator=random)
    subject = Subject(nn.Linear(4, 3), "cross_entropy", (x[:400], y[:400]), (x[400:], y[400:]))
    assert ShuffledTestLabels()(subject) is None


def test_advised_code_runs() -> None:
    finding = ShuffledTestLabels()(ShuffledTestLabels.plant(quick("table"), seed=1))
    x = torch.arange(10.0)[:, None]
    scope = {"torch": torch, "test_inputs": x, "test_targets": x[:, 0]}
    exec(finding.advice[0].code, scope)
    assert torch.equal(scope["test_inputs"][:, 0], scope["test_targets"])
