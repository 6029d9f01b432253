"""Shuffled training targets: found, told apart from wrong labels, hard data and untrained models."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import InputError, Recipe, Subject
from mindgap.diagnoses import ShuffledLabels, ShuffledTestLabels
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    return healthy_recipe(kind, task, seed).replace(epochs=4)


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("sequence", "classification"), ("table", "regression")],
)
def test_found_if_planted_and_only_then(kind: str, task: str) -> None:
    finding = ShuffledLabels()(ShuffledLabels.plant(quick(kind, task), seed=1))
    assert finding.severity == "wrong"
    assert finding.p_value < 1e-10
    left, known, _ = (row.value for row in finding.evidence)
    assert known > 0.4
    assert abs(left) < 0.15
    assert ShuffledLabels()(fit(quick(kind, task), seed=1).subject()) is None


@pytest.mark.parametrize("plant", [ShuffledTestLabels, ShuffledLabels])
def test_the_split_that_is_shuffled_is_named(plant: type) -> None:
    found = diagnose(plant.plant(quick("table", seed=2), seed=2))
    assert found.findings[0].name == plant.name


def test_models_of_no_signal_are_named_and_sure_if_they_learned_by_heart() -> None:
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(1600, 30, generator=random), torch.randint(0, 2, (1600,), generator=random)
    data = (x[:200], y[:200]), (x[200:], y[200:])
    recipe = Recipe(
        model=lambda: nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2)),
        train=data[0], test=data[1], epochs=60, learning_rate=3e-3,
    )  # fmt: skip
    learned = ShuffledLabels()(fit(recipe).subject())
    assert learned.sentence.startswith("Neither the model nor a simple predictor")
    assert learned.severity == "wrong"
    untrained = ShuffledLabels()(Subject(recipe.model(), "cross_entropy", *data))
    assert untrained is None or untrained.severity == "suspect"


def test_an_untrained_model_on_data_with_a_signal_is_not_accused() -> None:
    recipe = quick("table")
    subject = Subject(recipe.model(), "cross_entropy", recipe.train, recipe.test)
    assert ShuffledLabels()(subject) is None


def test_several_labels_are_refused() -> None:
    data = torch.randn(40, 3), (torch.randn(40, 2) > 0).float()
    with pytest.raises(InputError, match="several"):
        ShuffledLabels().look(Subject(nn.Linear(3, 2), "bce", data, data), {})


def test_advised_code_runs() -> None:
    finding = ShuffledLabels()(ShuffledLabels.plant(quick("table"), seed=1))
    x = torch.arange(10.0)[:, None]
    scope = {"torch": torch, "train_inputs": x, "train_targets": x[:, 0]}
    exec(finding.advice[0].code, scope)
    assert torch.equal(scope["train_inputs"][:, 0], scope["train_targets"])
