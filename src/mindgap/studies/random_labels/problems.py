"""Images whose labels or pixels are made random, the networks that fit them, and the fitting."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from mindgap.core import Recipe, Remedy, generator
from mindgap.data.catalog import load
from mindgap.data.dataset import DataSet
from mindgap.data.digits import digits
from mindgap.data.noise import label_noise
from mindgap.nets.mlp import MLP
from mindgap.nets.resnet import ResNet
from mindgap.training.fit import Loop

DATA = {"digits": "8×8 digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}
INPUTS = ("images", "shuffled pixels", "random pixels", "Gaussian")
CLASSES, BATCH = 10, 50
DIGITS = 1000  # at most, so that two draws of them differ


@dataclasses.dataclass(frozen=True)
class Problem:
    """Training and test samples; only those for training have random labels."""

    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor


def problem(
    data: str, inputs: str, corruption: float, sizes: tuple[int, int], seed: int
) -> Problem:
    """Draw images and make their labels or their pixels random.

    Every channel has mean 0 and variance 1 on the training images, as the Gaussian inputs have.

    Args:
        data: A key of ``DATA``; images other than the digits are averaged over 2×2 pixels.
        inputs: One of ``INPUTS``. Shuffled pixels have one order for all images, random pixels have
            an order per image.
        corruption: Share of the training labels that are drawn from all classes.
        sizes: Numbers of training and test samples.
        seed: Seed of the images, of the labels and of the pixels.

    >>> made = problem("digits", "shuffled pixels", 0.5, (20, 10), seed=0)
    >>> made.inputs.shape, made.test_inputs.shape
    (torch.Size([20, 1, 8, 8]), torch.Size([10, 1, 8, 8]))
    """
    drawn = _drawn(data, sizes, seed)
    assert drawn.test is not None
    labels, _ = label_noise(drawn.targets, corruption, "random", CLASSES, seed)
    parts = [drawn.inputs, drawn.test[0]]
    if data != "digits":
        parts = [nn.functional.avg_pool2d(part, 2) for part in parts]
    mean, scale = (f(parts[0], (0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))
    train, test = changed([(part - mean) / scale for part in parts], inputs, seed)
    return Problem(train, labels, test, drawn.test[1])


def _drawn(data: str, sizes: tuple[int, int], seed: int) -> DataSet:
    if data == "digits":
        return digits(min(500, sizes[1]), seed).subset(min(DIGITS, sizes[0]), seed)
    return load(data, size=sizes[0], test_size=sizes[1], seed=seed)


def changed(parts: Sequence[Tensor], inputs: str, seed: int) -> list[Tensor]:
    """Reorder the pixels of training and test images, or draw Gaussian inputs in their place.

    Args:
        parts: Images of shape (n, channels, height, width); all channels are reordered alike.
        inputs: One of ``INPUTS``.
        seed: Seed of the orders and of the draws.
    """
    random, pixels = generator(seed), parts[0][0, 0].numel()
    if inputs == "Gaussian":
        return [torch.randn(part.shape, generator=random) for part in parts]
    if inputs == "shuffled pixels":
        order = torch.randperm(pixels, generator=random)
        return [part.flatten(2)[:, :, order].view_as(part) for part in parts]
    if inputs == "random pixels":
        orders = [torch.rand(len(part), 1, pixels, generator=random).argsort(2) for part in parts]
        pairs = zip(parts, orders, strict=True)
        return [
            part.flatten(2).gather(2, order.expand(-1, part.shape[1], -1)).view_as(part)
            for part, order in pairs
        ]
    return list(parts)


def convolutional(channels: int, pixels: int) -> nn.Module:
    """Make a small network of two convolutions and two linear layers.

    Args:
        channels: 1 for gray, 3 for color.
        pixels: Height and width of the images.

    >>> convolutional(3, 16)(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """
    return nn.Sequential(
        *(nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(16 * (pixels // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
    )


# Each with the learning rate of Adam.
NETWORKS: Mapping[str, tuple[float, Callable[[int, int], nn.Module]]] = {
    "MLP": (0.001, lambda channels, pixels: MLP((channels * pixels**2, 512, CLASSES))),
    "CNN": (0.003, convolutional),
    "ResNet-8": (0.003, lambda channels, _: ResNet(8, CLASSES, channels, width=8)),
}


@dataclasses.dataclass(frozen=True)
class Fit:
    """How a network was fitted.

    Args:
        losses: Mean training loss of every epoch.
        fitted: The first epoch after which every training sample is right, or None.
        train_error: Training error at the end, in evaluation mode.
        test_error: Test error at the end, which nothing was chosen by.
    """

    losses: list[float]
    fitted: int | None
    train_error: float
    test_error: float


def fit_all(
    made: Problem,
    network: str,
    epochs: int,
    seed: int,
    remedies: Sequence[Remedy] = (),
    *,
    stop: bool = True,
) -> Fit:
    """Train until every training sample is right, or to the last epoch.

    Args:
        made: The samples.
        network: A key of ``NETWORKS``.
        epochs: The most passes over the training samples.
        seed: Seed of initial weights, batches and noise.
        remedies: Remedies of the run.
        stop: Whether to stop when every training sample is right.

    >>> fit_all(problem("digits", "images", 1.0, (20, 10), seed=0), "MLP", 60, seed=0).train_error
    0.0
    """
    rate, build = NETWORKS[network]
    channels, pixels = made.inputs.shape[1:3]
    recipe = Recipe(
        model=lambda: build(channels, pixels),
        train=(made.inputs, made.labels),
        epochs=epochs,
        batch_size=BATCH,
        learning_rate=rate,
    )
    loop, fitted = Loop(recipe, remedies, seed, (), evaluate_every=1), None
    while loop.epoch < epochs and not loop.stopped and not (stop and fitted):
        loop.advance()
        if fitted is None and loop.history and loop.history[-1]["train_error"] == 0:
            fitted = loop.epoch
    model = loop.fitted().model
    with torch.no_grad():
        wrong = model(made.test_inputs).argmax(1) != made.test_labels
    return Fit(
        losses=[row["running_loss"] for row in loop.history],
        fitted=fitted,
        train_error=loop.history[-1]["train_error"],
        test_error=float(wrong.double().mean()),
    )
