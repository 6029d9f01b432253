"""Small recipes that workers can load, and counters of what they do."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mindgap.core import Recipe
from mindgap.nets import MLP

SIZE = 160


def noisy_moons(train: int = SIZE, test: int = 120, seed: int = 0) -> tuple[Any, Any]:
    """Two classes that overlap, so that errors vary between seeds."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(train + test, 6, generator=random)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * torch.randn(len(x), generator=random) > 0).long()
    return (x[:train], y[:train]), (x[train:], y[train:])


def model() -> nn.Module:
    """Return a small perceptron."""
    return MLP((6, 12, 2))


def make_recipe(**changes: Any) -> Recipe:
    """Return a recipe that trains in milliseconds."""
    train, test = noisy_moons()
    recipe = Recipe(
        model=model,
        train=train,
        test=test,
        epochs=4,
        learning_rate=0.01,
        batch_size=32,
        name="moons",
    )
    return recipe.replace(**changes)


def slow_recipe() -> Recipe:
    """Return the same recipe, which notes every model that it builds in a file."""
    return make_recipe(model=noted_model)


def noted_model() -> nn.Module:
    """Write a line per model, where the environment says."""
    with Path(os.environ["MINDGAP_NOTES"]).open("a") as file:
        file.write("model\n")
    return model()
