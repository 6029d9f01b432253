"""Noise sensitivity: plants, healthy nets, constant columns."""

from __future__ import annotations

import pytest
import torch
from healthy import healthy
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses.confidence.noise_sensitivity import NoiseSensitivity
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit

KINDS = [
    ("image", "classification"),
    ("table", "classification"),
    ("table", "regression"),
    ("sequence", "classification"),
    ("sequence", "regression"),
]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found_and_healthy_nets_are_not(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task, seed=1)  # type: ignore[arg-type]
    assert NoiseSensitivity()(healthy(kind, task)) is None
    planted = NoiseSensitivity.plant(recipe, seed=1)
    finding = NoiseSensitivity()(planted)
    assert finding is not None
    assert finding.severity == "wrong"
    assert finding.suspects.index
    assert "randn_like" in finding.advice[0].code
    scope = {"torch": torch, "inputs": recipe.train[0]}
    exec(finding.advice[0].code, scope)
    assert scope["inputs"].shape == recipe.train[0].shape


def test_the_ripple_is_invisible_without_noise() -> None:
    planted = NoiseSensitivity.plant(healthy_recipe("image"), seed=0)
    inner = planted.model.model
    x = planted.split("test").take(torch.arange(50)).inputs[0]
    assert torch.allclose(planted.model(x), inner(x), atol=1e-2)


def test_constant_columns_get_no_noise() -> None:
    recipe = healthy_recipe("table")
    pad = lambda x: torch.cat([x, torch.full((len(x), 1), 3.0)], 1)  # noqa: E731

    class Padded(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x[:, :10]) + 1e6 * (x[:, 10:] - 3.0)

    net = fit(recipe, seed=0, evaluate_every=0).model
    subject = Subject(
        Padded(net),
        "cross_entropy",
        (pad(recipe.train[0]), recipe.train[1]),
        (pad(recipe.test[0]), recipe.test[1]),
    )
    assert NoiseSensitivity()(subject) is None
