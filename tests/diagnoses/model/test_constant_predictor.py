"""Constant predictors: of classes, labels and values; one-sided targets are no proof."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.diagnoses import ConstantPredictor
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def flat(outputs: int, bias: float = 0.0) -> nn.Linear:
    layer = nn.Linear(2, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, bias)
    return layer


def inputs(count: int = 200) -> Tensor:
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("case", CASES)
def test_trained_models_are_not_accused(case: str) -> None:
    assert ConstantPredictor()(CASES[case](torch.float32)) is None


def test_classes() -> None:
    x = inputs()
    data = (x, (x[:, 0] > 0).long())
    finding = ConstantPredictor()(Subject(flat(2), "cross_entropy", data, data, classes=("a", "b")))
    assert finding.severity == "wrong"
    assert finding.sentence == "The model predicts class 'a' for 100.0 % of the samples."


def test_one_sided_targets_are_a_suspicion() -> None:
    x = inputs()
    data = (x, (torch.arange(200) % 20 == 0).long())
    assert ConstantPredictor()(Subject(flat(2), "cross_entropy", data)).severity == "suspect"


def test_labels() -> None:
    x = inputs()
    data = (x, (x > 0).float())
    finding = ConstantPredictor()(Subject(flat(2, -1.0), "bce", data, data))
    assert finding.severity == "wrong"
    assert "no label" in finding.sentence


@pytest.mark.parametrize(("spread", "found"), [(0.0, True), (0.015, True), (0.03, False)])
def test_values(spread: float, found: bool) -> None:
    x = inputs()
    model = flat(1)
    with torch.no_grad():
        model.weight[0, 0] = spread
    finding = ConstantPredictor()(Subject(model, "mse", (x, x[:, :1])))
    assert (finding is not None) == found


def test_targets_that_do_not_vary_ask_for_a_constant() -> None:
    x = inputs()
    assert ConstantPredictor()(Subject(flat(1), "mse", (x, torch.ones(200, 1)))) is None


def test_a_constant_on_test_data_alone_is_not_the_model() -> None:
    x = inputs()
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
        model.bias.zero_()
    test = (x.abs(), torch.arange(200) % 2)
    subject = Subject(model, "cross_entropy", (x, (x[:, 0] > 0).long()), test)
    assert ConstantPredictor()(subject) is None


@pytest.mark.parametrize("kind", ["image", "sequence"])
def test_plant_comes_first(kind: str) -> None:
    recipe = healthy_recipe(kind)
    subject = ConstantPredictor.plant(recipe.replace(epochs=5), seed=1)
    found = diagnose(subject, diagnoses=["constant-predictor", "ignored-class", "dead-units"])
    assert found.findings[0].name == "constant-predictor"
    assert ConstantPredictor()(fit(recipe, evaluate_every=0).subject()) is None
