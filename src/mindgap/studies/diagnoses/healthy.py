"""Recipes without problems: what plants go into, and what must not be accused."""

import math

import torch
from torch import Tensor, nn

from mindgap.core import Kind, Recipe
from mindgap.data.dataset import DataSet
from mindgap.data.digits import digits
from mindgap.data.generators import teacher
from mindgap.nets import MLP, Elman

STEPS, CHANNELS = 24, 2  # of a sequence


def healthy_recipe(kind: Kind, task: str = "classification", seed: int = 0) -> Recipe:
    """Return a recipe that trains well in about a second.

    Args:
        kind: ``"image"`` (the embedded digits), ``"table"`` or ``"sequence"``.
        task: ``"classification"`` or ``"regression"``; images are always classified.
        seed: Seed of the data.

    >>> recipe = healthy_recipe("table", seed=1)
    >>> [tuple(part.shape) for part in recipe.train]
    [(2000, 10), (2000,)]
    """
    if kind == "image":
        return _image(seed)
    return _table(task, seed) if kind == "table" else _sequence(task, seed)


def _image(seed: int) -> Recipe:
    data = digits(seed=seed)
    return _recipe(data, lambda: MLP(widths=(64, 64, 10)), epochs=15, learning_rate=3e-3)


def _table(task: str, seed: int) -> Recipe:
    outputs = 3 if task == "classification" else 1
    data = teacher(
        size=2000,
        test_size=1000,
        widths=(10, 6, outputs),
        task=task,
        noise=0.0 if task == "classification" else 0.2,
        seed=seed,
    )
    return _recipe(data, lambda: MLP(widths=(10, 32, outputs)), epochs=20, learning_rate=5e-3)


def _recipe(data: DataSet, model: object, **settings: object) -> Recipe:
    return Recipe(
        model=model,  # type: ignore[arg-type]
        train=data.train,
        test=data.test,
        loss="mse" if data.task == "regression" else "cross_entropy",
        **settings,  # type: ignore[arg-type]
    )


def _sequence(task: str, seed: int) -> Recipe:
    """Waves with noise: the class, or the target, is how fast they swing."""
    random = torch.Generator().manual_seed(seed)
    train, test = (_waves(count, task, random) for count in (1500, 700))
    outputs = 3 if task == "classification" else 1

    def model() -> nn.Module:
        return Elman(features=CHANNELS, hidden=32, outputs=outputs, readout="mean")

    return Recipe(
        model=model,
        train=train,
        test=test,
        loss="cross_entropy" if task == "classification" else "mse",
        epochs=12,
        learning_rate=5e-3,
    )


def _waves(count: int, task: str, random: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.randint(3, (count,), generator=random)
    speeds = 1.5 + 1.5 * labels + torch.rand(count, generator=random) - 0.5
    phases = 2 * math.pi * torch.rand(count, 1, generator=random)
    angles = 2 * math.pi * speeds[:, None] * torch.arange(STEPS) / STEPS + phases
    sizes = 0.7 + 0.6 * torch.rand(count, 1, 1, generator=random)
    waves = sizes * torch.stack([angles.sin(), angles.cos()], 2)
    noisy = waves + 0.3 * torch.randn(waves.shape, generator=random)
    targets = labels if task == "classification" else speeds[:, None] - 3.0
    return noisy, targets
