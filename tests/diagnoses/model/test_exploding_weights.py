"""Exploding weights: gains by hand, a note where normalization makes up for them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses import ExplodingWeights
from mindgap.diagnoses.model.exploding_weights import LARGE, _gains
from mindgap.nets import MLP, Elman
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def test_gain_is_that_of_a_random_input() -> None:
    random = torch.Generator().manual_seed(0)
    layer = nn.Linear(50, 40, bias=False)
    x = torch.randn(4000, 50, generator=random)
    enlarged = float((x @ layer.weight.detach().T).square().mean().sqrt())
    assert dict(_gains(layer))["weight"] == pytest.approx(enlarged, rel=0.02)
    kernel = nn.Conv2d(3, 5, 3)
    by_hand = kernel.weight.detach().square().sum((1, 2, 3)).mean().sqrt()
    assert dict(_gains(kernel))["weight"] == pytest.approx(float(by_hand), rel=1e-6)


def test_embeddings_and_biases_have_no_gain() -> None:
    model = Elman(features=4, hidden=5, outputs=2, vocabulary=30)
    assert not [name for name, _ in _gains(model) if "embedding" in name or "bias" in name]


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("table", "regression"), ("sequence", "classification")],
)
def test_healthy_and_planted(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task).replace(epochs=4)
    subject = fit(recipe, seed=1, evaluate_every=0).subject()
    assert ExplodingWeights()(subject) is None
    assert max(dict(_gains(subject.model)).values()) < LARGE / 4
    finding = ExplodingWeights()(ExplodingWeights.plant(recipe, seed=1))
    assert finding.severity == "wrong"
    name = list(dict(_gains(subject.model)))[1]
    assert repr(name) in finding.sentence


def test_normalized_layers_may_be_large() -> None:
    recipe = healthy_recipe("table").replace(
        model=lambda: MLP((10, 32, 3), norm="batch"), epochs=4, batch_size=50
    )
    subject = fit(recipe, seed=0, evaluate_every=0).subject()
    with torch.no_grad():  # the same function, with weights a thousand times as large
        subject.model[1].weight.mul_(1000)
        subject.model[1].bias.mul_(1000)
        subject.model[2].running_mean.mul_(1000)
        subject.model[2].running_var.mul_(1e6)
    assert ExplodingWeights()(subject).severity == "note"


def test_a_model_without_matrices() -> None:
    x = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
    assert ExplodingWeights()(Subject(nn.PReLU(), "mse", (x, x))) is None
