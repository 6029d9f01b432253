"""Recipes without problems: what plants go into, and what must not be accused."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from mindgap.core import Kind, Recipe
from mindgap.data.digits import digits
from mindgap.data.generators import teacher
from mindgap.data.mnist import mnist
from mindgap.data.splits import standardize
from mindgap.data.uci_tables import uci
from mindgap.nets import MLP, Elman, LeNet5

STEPS, CHANNELS = 24, 2  # of a sequence
Pair = tuple[Tensor, Tensor]


def healthy_recipe(kind: Kind, task: str = "classification", seed: int = 0) -> Recipe:
    """Return a recipe that trains well in about a second, on data that come with the package.

    Args:
        kind: ``"image"`` (the embedded digits), ``"table"`` or ``"sequence"``.
        task: ``"classification"`` or ``"regression"``; images are always classified.
        seed: Seed of the data.

    >>> recipe = healthy_recipe("table", seed=1)
    >>> [tuple(part.shape) for part in recipe.train]
    [(2000, 10), (2000,)]
    """
    if kind == "image":
        return digits_perceptron(seed)
    return teacher_table(seed, task) if kind == "table" else waves(seed, task)


def digits_perceptron(seed: int) -> Recipe:
    """Return a perceptron on the embedded digits."""
    return _digits(lambda: MLP(widths=(64, 64, 10)), seed, epochs=30, learning_rate=3e-3)


def digits_convolution(seed: int) -> Recipe:
    """Return a small convolutional net with batch normalization on the embedded digits."""
    return _digits(_convolution, seed, epochs=10, learning_rate=5e-3)


def digits_recurrent(seed: int) -> Recipe:
    """Return a recurrent net that reads the embedded digits row by row."""
    model = lambda: Elman(features=8, hidden=48, outputs=10)  # noqa: E731
    return _digits(model, seed, epochs=30, learning_rate=3e-3)


def _digits(model: Callable[[], nn.Module], seed: int, **settings: float) -> Recipe:
    data = digits(seed=seed)
    pool = (
        torch.cat([data.inputs, _part(data.test)[0]]),
        torch.cat([data.targets, _part(data.test)[1]]),
    )
    train, test = _split(pool, 1297, 500, seed)
    return Recipe(model=model, train=train, test=test, **settings)  # type: ignore[arg-type]


def _part(pair: Pair | None) -> Pair:
    assert pair is not None
    return pair


def _convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12 * 16, 10),
    )


def mnist_perceptron(seed: int) -> Recipe:
    """Return a perceptron on 4,000 images of MNIST, split at random from its training part."""
    model = lambda: MLP(widths=(784, 64, 10), dropout=0.2)  # noqa: E731
    return _mnist(model, seed, epochs=15, learning_rate=2e-3)


def mnist_convolution(seed: int) -> Recipe:
    """Return LeNet-5 on 4,000 images of MNIST, split at random from its training part."""
    return _mnist(LeNet5, seed, epochs=8, learning_rate=2e-3)


def _mnist(model: Callable[[], nn.Module], seed: int, **settings: float) -> Recipe:
    data = mnist(size=6000, test_size=1, seed=seed)
    train, test = _split(data.train, 4000, 2000, seed)
    return Recipe(model=model, train=train, test=test, **settings)  # type: ignore[arg-type]


def _split(pool: Pair, train: int, test: int, seed: int) -> tuple[Pair, Pair]:
    """Split at random and not by class, as users do."""
    order = torch.randperm(len(pool[0]), generator=torch.Generator().manual_seed(1000 + seed))
    first, second = order[:train], order[train : train + test]
    return (pool[0][first], pool[1][first]), (pool[0][second], pool[1][second])


def teacher_table(seed: int, task: str = "classification") -> Recipe:
    """Return a perceptron on a table that another perceptron made."""
    outputs = 3 if task == "classification" else 1
    data = teacher(
        size=2000,
        test_size=1000,
        widths=(10, 6, outputs),
        task=task,
        noise=0.0 if task == "classification" else 0.2,
        seed=seed,
    )
    return Recipe(
        model=lambda: MLP(widths=(10, 32, outputs)),
        train=data.train,
        test=data.test,
        loss="cross_entropy" if task == "classification" else "mse",
        epochs=20,
        learning_rate=5e-3,
    )


def uci_table(seed: int, table: str) -> Recipe:
    """Return a perceptron on a table of measurements, with a random split of it."""
    data = uci(table)
    pool = (
        torch.cat([data.inputs, _part(data.test)[0]]),
        torch.cat([data.targets, _part(data.test)[1]]),
    )
    train, test = _split(pool, 3000, 1500, seed)
    inputs, targets = (standardize(train[k], test[k]) for k in (0, 1))
    return Recipe(
        model=lambda: MLP(widths=(inputs[0].shape[1], 32, 1)),
        train=(inputs[0].float(), targets[0].float()),
        test=(inputs[1].float(), targets[1].float()),
        loss="mse",
        epochs=30,
        learning_rate=3e-3,
    )


def waves(seed: int, task: str = "classification") -> Recipe:
    """Return a recurrent net on noisy waves: the target is how fast they swing."""
    random = torch.Generator().manual_seed(seed)
    train, test = (_waves(count, task, random) for count in (1500, 700))
    outputs = 3 if task == "classification" else 1
    return Recipe(
        model=lambda: Elman(features=CHANNELS, hidden=32, outputs=outputs, readout="mean"),
        train=train,
        test=test,
        loss="cross_entropy" if task == "classification" else "mse",
        epochs=15,
        learning_rate=3e-3,  # at 5e-3 the loss of one run in ten shoots up in the last epoch
    )


def _waves(count: int, task: str, random: torch.Generator) -> Pair:
    labels = torch.randint(3, (count,), generator=random)
    speeds = 1.5 + 1.5 * labels + torch.rand(count, generator=random) - 0.5
    phases = 2 * math.pi * torch.rand(count, 1, generator=random)
    angles = 2 * math.pi * speeds[:, None] * torch.arange(STEPS) / STEPS + phases
    sizes = 0.7 + 0.6 * torch.rand(count, 1, 1, generator=random)
    clean = sizes * torch.stack([angles.sin(), angles.cos()], 2)
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=random)
    return noisy, labels if task == "classification" else speeds[:, None] - 3.0


# Sources of healthy subjects: six data sets, perceptrons, convolutional and recurrent nets, both
# tasks. Every seed gives another split or another draw.
HEALTHY: Mapping[str, Callable[[int], Recipe]] = {
    "digits, perceptron": digits_perceptron,
    "digits, convolution": digits_convolution,
    "digits, recurrent": digits_recurrent,
    "MNIST, perceptron": mnist_perceptron,
    "MNIST, LeNet-5": mnist_convolution,
    "table, perceptron": teacher_table,
    "table, regression": lambda seed: teacher_table(seed, "regression"),
    "waves, recurrent": waves,
    "waves, regression": lambda seed: waves(seed, "regression"),
    "kin8nm, regression": lambda seed: uci_table(seed, "kin8nm"),
    "power plant, regression": lambda seed: uci_table(seed, "power"),
}
