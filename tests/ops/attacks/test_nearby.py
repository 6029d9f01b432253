"""Distances to the nearest sample with another target, by brute force."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import InputError, Subject
from mindgap.ops.attacks.nearby import nearby
from mindgap.studies.diagnoses.healthy import healthy_recipe


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_distances_are_those_of_brute_force(task: str) -> None:
    recipe = healthy_recipe("table", task)
    train, test = (recipe.train[0][:500], recipe.train[1][:500]), recipe.test
    loss, outputs = ("cross_entropy", 3) if task == "classification" else ("mse", 1)
    found = nearby(Subject(nn.Linear(10, outputs), loss, train, test), 20)
    pool = torch.cat([train[0], test[0]])
    assert torch.allclose(found.scale, pool.std(0), rtol=1e-4)
    spread = train[1].double().std()
    for place, distance in zip(found.places, found.distances, strict=True):
        away = (train[1] - test[1][place]).abs().flatten()
        other = away > 0 if task == "classification" else away / spread >= 0.5
        moves = (train[0][other] - test[0][place]) / pool.std(0)
        assert distance == pytest.approx(float(moves.norm(dim=1).min()), rel=1e-3)


def test_samples_without_another_target_are_left_out() -> None:
    same = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.ones(30, 1)
    found = nearby(Subject(nn.Linear(4, 1), "mse", same, same), 30)
    assert found.inputs.shape == (0, 4)
    assert len(found.distances) == 0


def test_tokens_and_several_inputs_are_refused() -> None:
    tokens = torch.arange(80).view(20, 4) % 7, torch.arange(20) % 2
    model = nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(8, 2))
    with pytest.raises(InputError, match="tensor of numbers"):
        nearby(Subject(model, "cross_entropy", tokens, tokens), 10)
