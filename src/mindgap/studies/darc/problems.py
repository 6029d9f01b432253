"""What the studies of DARC train on, and ratios of errors with their intervals."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mindgap.core import Interval, Recipe, Remedy, evaluating
from mindgap.data.cifar import cifar10
from mindgap.data.dataset import DataSet
from mindgap.data.mnist import mnist
from mindgap.nets.mlp import MLP
from mindgap.remedies.augmentation.random_shifts import RandomShifts
from mindgap.studies.perturbed.arms import Parts, parts_of

CHUNK = 2_000  # images per forward pass in evaluation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """A data set, how far its images are shrunk, and the augmentation that all arms share."""

    load: Callable[..., DataSet]
    pool: int = 1
    augmentation: tuple[Remedy, ...] = ()

    def parts(self, sizes: tuple[int, int, int]) -> Parts:
        """Return training, validation and test images; the same ones for all seeds.

        Args:
            sizes: Numbers of training, validation and test images.
        """
        return parts_of(self.load, sizes, 0, self.pool)


PROBLEMS = {
    "MNIST": Problem(load=mnist),
    "MNIST, shifted": Problem(load=mnist, augmentation=(RandomShifts(pixels=2),)),
    "CIFAR-10": Problem(load=cifar10, pool=2),
}


def perceptron(images: Tensor, width: int) -> Callable[[], nn.Module]:
    """Return the factory of an MLP with one hidden layer for images of this shape."""
    return functools.partial(MLP, (images[0].numel(), width, 10))


def recipe_of(parts: Parts, width: int, **settings: object) -> Recipe:
    """Return the recipe of a perceptron, trained by Adam in batches of 50.

    Args:
        parts: As :meth:`Problem.parts` returns them.
        width: Hidden units.
        **settings: Further fields of the recipe.
    """
    fixed = {"model": perceptron(parts["train"][0], width), "train": parts["train"]}
    return Recipe(**{**fixed, "batch_size": 50, **settings})  # type: ignore[arg-type]


def error(model: nn.Module, part: tuple[Tensor, Tensor]) -> float:
    """Return the share of wrong answers."""
    with evaluating(model):
        wrong = [
            (model(images).argmax(1) != targets).sum()
            for images, targets in zip(*(values.split(CHUNK) for values in part), strict=True)
        ]
    return float(torch.stack(wrong).sum()) / len(part[1])


def ratio(treated: Sequence[float], control: Sequence[float]) -> tuple[float, Interval]:
    """Return the ratio of mean errors, with a bootstrap interval over paired seeds.

    >>> value, interval = ratio([0.08, 0.09, 0.1], [0.1, 0.1, 0.1])
    >>> round(value, 3), 0.79 < interval.low < 0.9 < interval.high < 1.01
    (0.9, True)
    """
    top, bottom = np.asarray(treated, float), np.asarray(control, float)
    picks = np.random.default_rng(0).integers(len(top), size=(4_000, len(top)))
    drawn = top[picks].mean(1) / np.maximum(bottom[picks].mean(1), 1e-12)
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = float(top.mean() / max(float(bottom.mean()), 1e-12))
    return value, Interval(low=float(low), high=float(high), level=0.95)
