"""Data drawn from a known distribution: two moons, a noisy curve, a teacher network."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer, number, validated
from mindgap.data.dataset import DataSet, dataset
from mindgap.data.noise import label_noise

TEACHER_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
CALIBRATION = 4096  # inputs that center a teacher's outputs, so that no class is empty by bad luck


@dataset("two-moons")
@validated
def two_moons(
    size: int = 300, test_size: int = 1000, noise: float = 0.1, grid: bool = False, seed: int = 0
) -> DataSet:
    """Two interleaving half circles with Gaussian noise, in scikit-learn's parametrization.

    The upper moon is (cos t, sin t), the lower (1 - cos t, 1/2 - sin t), t from 0 to π, with half
    of the samples each.

    Args:
        size: Number of training samples.
        test_size: Number of test samples.
        noise: Standard deviation of the noise.
        grid: Whether t is spaced evenly, as in scikit-learn; otherwise t is uniform, so that the
            samples of a class are independent.
        seed: Seed of everything that is drawn.

    >>> two_moons(size=100)
    DataSet('two-moons': classification, 100 train, 1000 test, inputs (2,) float32, 2 classes)
    """
    integer("size", size, 2), integer("test_size", test_size, 2), number("noise", noise)
    random = generator(seed)
    train, test = (_moons(count, noise, grid, random) for count in (size, test_size))
    return DataSet("two-moons", *train, *test, classes=("upper", "lower"), feature_names=("x", "y"))


def _moons(size: int, noise: float, grid: bool, random: torch.Generator) -> tuple[Tensor, Tensor]:
    upper, lower = (_angles(count, grid, random) for count in (size // 2, size - size // 2))
    points = torch.cat(
        [_points(upper.cos(), upper.sin()), _points(1 - lower.cos(), 0.5 - lower.sin())]
    )
    labels = torch.cat([torch.zeros(len(upper)), torch.ones(len(lower))]).long()
    order = torch.randperm(size, generator=random)
    noisy = points + noise * torch.randn(points.shape, generator=random, dtype=points.dtype)
    return noisy[order].float(), labels[order]


def _angles(count: int, grid: bool, random: torch.Generator) -> Tensor:
    if grid:
        return torch.linspace(0, math.pi, count, dtype=torch.float64)
    return math.pi * torch.rand(count, generator=random, dtype=torch.float64)


def _points(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], dim=1)


def heteroscedastic_mean(inputs: Tensor) -> Tensor:
    """Compute the mean sin(πx) of ``heteroscedastic``."""
    return torch.sin(math.pi * inputs)


def heteroscedastic_std(inputs: Tensor, noise: float = 0.5) -> Tensor:
    """Compute the standard deviation (3 + 2x) / 5 · noise of ``heteroscedastic``."""
    return noise * (3 + 2 * inputs) / 5


@dataset("heteroscedastic")
@validated
def heteroscedastic(
    size: int = 200, test_size: int = 1000, noise: float = 0.5, seed: int = 0
) -> DataSet:
    """Regression on one input whose noise grows with it: y = sin(πx) + (3 + 2x)/5 · noise · ε.

    x is uniform in [-1, 1] and ε standard normal. No regression has an expected squared error below
    ``facts["noise_variance"]`` = 31/75 · noise².

    Args:
        size: Number of training samples.
        test_size: Number of test samples.
        noise: Standard deviation of the noise at x = 1; a fifth of it at x = -1.
        seed: Seed of everything that is drawn.

    >>> round(heteroscedastic(noise=1.0).facts["noise_variance"], 4)
    0.4133
    """
    integer("size", size, 1), integer("test_size", test_size, 1), number("noise", noise)
    random = generator(seed)
    inputs = 2 * torch.rand(size + test_size, 1, generator=random) - 1
    epsilon = torch.randn(inputs.shape, generator=random)
    targets = heteroscedastic_mean(inputs) + heteroscedastic_std(inputs, noise) * epsilon
    parts = inputs[:size], targets[:size], inputs[size:], targets[size:]
    facts = {"noise_variance": 31 / 75 * noise**2}
    return DataSet("heteroscedastic", *parts, task="regression", feature_names=("x",), facts=facts)


@dataset("teacher")
@validated
def teacher(
    size: int = 1000,
    test_size: int = 1000,
    widths: Sequence[int] = (20, 30, 2),
    activation: str = "relu",
    task: str = "classification",
    noise: float = 0.0,
    seed: int = 0,
) -> DataSet:
    """Standard normal inputs labeled by a random multi-layer perceptron, the teacher.

    Its weights have variance 2 / fan-in, and it has no biases. The class is the largest of its
    centered outputs, and test classes are clean. No regression has an expected squared error below
    ``facts["noise_variance"]``.

    Args:
        size: Number of training samples.
        test_size: Number of test samples.
        widths: Widths of the teacher's layers, from inputs to outputs.
        activation: ``"relu"`` or ``"tanh"``.
        task: ``"classification"`` or ``"regression"``.
        noise: Exact share of the training labels that are moved to another class, or the standard
            deviation of Gaussian noise on all targets of a regression.
        seed: Seed of everything that is drawn.

    >>> teacher(size=50, widths=(5, 8, 3))
    DataSet('teacher': classification, 50 train, 1000 test, inputs (5,) float32, 3 classes)
    """
    _check_teacher(size, test_size, widths, activation, task, noise)
    random = generator(seed)
    weights = [
        torch.randn(a, b, generator=random) * (2 / a) ** 0.5 for a, b in itertools.pairwise(widths)
    ]
    inputs = torch.randn(CALIBRATION + size + test_size, widths[0], generator=random)
    outputs = _answers(inputs, weights, activation)
    inputs, outputs = (
        inputs[CALIBRATION:],
        outputs[CALIBRATION:] - outputs[:CALIBRATION].mean(dim=0),
    )
    if task == "regression":
        return _regression(
            inputs, outputs + noise * torch.randn(outputs.shape, generator=random), size, noise
        )
    again = int(torch.randint(2**31, (), generator=random))
    return _classification(inputs, outputs.argmax(dim=1), size, noise, widths[-1], again)


def _answers(inputs: Tensor, weights: list[Tensor], activation: str) -> Tensor:
    for weight in weights[:-1]:
        inputs = TEACHER_ACTIVATIONS[activation](inputs @ weight)
    return inputs @ weights[-1]


def _regression(inputs: Tensor, targets: Tensor, size: int, noise: float) -> DataSet:
    parts = inputs[:size], targets[:size], inputs[size:], targets[size:]
    return DataSet("teacher", *parts, task="regression", facts={"noise_variance": noise**2})


def _classification(
    inputs: Tensor, labels: Tensor, size: int, noise: float, classes: int, seed: int
) -> DataSet:
    noisy, _ = label_noise(labels[:size], noise, "symmetric", classes, seed)
    names = tuple(str(number) for number in range(classes))
    return DataSet("teacher", inputs[:size], noisy, inputs[size:], labels[size:], classes=names)


def _check_teacher(
    size: int, test_size: int, widths: Sequence[int], activation: str, task: str, noise: float
) -> None:
    integer("size", size, 1), integer("test_size", test_size, 1)
    choice("activation", activation, TEACHER_ACTIVATIONS)
    choice("task", task, ("classification", "regression"))
    number("noise", noise, 0, 1 if task == "classification" else math.inf)
    if len(widths) < 2:
        raise InputError(
            f"widths must hold at least two integers (features in, features out), got {widths!r}. "
            "Add one."
        )
    for width in widths:
        integer("widths", width, 1)
    if task == "classification":
        integer("widths[-1]", widths[-1], 2)
