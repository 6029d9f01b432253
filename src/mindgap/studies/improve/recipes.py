"""Recipes of the studies of improve, as one would begin."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mindgap.core import Recipe
from mindgap.data import DataSet, standardize, stratified_split
from mindgap.nets import MLP

SIDE = 8  # pixels to which images of CIFAR-10 are averaged
MOST = 0.7  # share of the samples that may be trained on


class Sizes(NamedTuple):
    """How large a recipe is.

    Args:
        samples: Largest number of training samples.
        test_samples: Largest number of test samples.
        hidden: Hidden units of the network.
        epochs: Passes over the training data.
    """

    samples: int
    test_samples: int
    hidden: int
    epochs: int


def plain_recipe(data: DataSet, sizes: Sizes, seed: int) -> Recipe:
    """Make a recipe as one would begin: standardized tables, Adam, default settings.

    Args:
        data: The samples; those of an official test set are pooled with the others.
        sizes: How large it is.
        seed: Seed of the split.
    """
    classes = data.task == "classification"
    inputs, targets = _pooled(data)
    most = min(sizes.samples, int(MOST * len(targets)))
    judged = min(sizes.test_samples, len(targets) - most)
    train, test = stratified_split(targets, (most, judged), seed)
    left, right = inputs[train], inputs[test]
    if data.inputs.ndim == 2:  # a table; the pixels of images have one scale
        left, right = standardize(left, right)
    if not classes:
        targets = targets.reshape(len(targets), -1).float()
        targets = (targets - targets[train].mean(0)) / targets[train].std(0)
    outputs = int(targets.max()) + 1 if classes else targets.shape[1]
    return Recipe(
        model=functools.partial(MLP, widths=(left.shape[1], sizes.hidden, outputs)),
        train=(left, targets[train]),
        test=(right, targets[test]),
        loss="cross_entropy" if classes else "mse",
        epochs=sizes.epochs,
        batch_size=50,
    )


def _pooled(data: DataSet) -> tuple[Tensor, Tensor]:
    """Return all samples, also those of an official test set; the split is drawn from them."""
    if data.test is None:
        return _small(data.inputs), data.targets
    inputs, targets = data.test
    return _small(torch.cat([data.inputs, inputs])), torch.cat([data.targets, targets])


def _small(images: Tensor) -> Tensor:
    """Flatten inputs; color images are averaged to fewer pixels first."""
    if images.ndim == 4 and images.shape[1] == 3:
        images = nn.functional.adaptive_avg_pool2d(images.float(), SIDE)
    return images.flatten(1).float()
