"""The arms of the studies of PerturbedOPT, and the training of one arm with its curves."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import Recipe, Remedy
from mindgap.data.dataset import DataSet
from mindgap.data.splits import stratified_split
from mindgap.remedies.perturbation.perturbed import Perturbed
from mindgap.remedies.perturbation.sam import SAM
from mindgap.training.fit import Loop

GAMMAS, RATES, RADII = (0.3, 1.0, 3.0), (0.1, 0.3, 0.5), (0.02, 0.05, 0.1)  # candidate settings
METHODS = ("PerturbedOPT", "dropout", "SAM")
PLAIN = "Adam"
PUBLISHED = Perturbed(eta=0.01, gamma=10.0, epsilon=1e-5)
CHUNK = 500  # images per forward pass in evaluation

Parts = Mapping[str, tuple[Tensor, Tensor]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to train.

    Args:
        name: The row label in the table.
        method: What the arm is a setting of; the best setting of a method is chosen.
        remedies: The remedies to train with.
        changes: Fields of the recipe that differ from those of the other arms.
        control: The arm to compare with.
    """

    name: str
    method: str
    remedies: tuple[Remedy, ...] = ()
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    control: str = PLAIN


def candidates(dropout: Callable[[float], Arm]) -> tuple[Arm, ...]:
    """Return plain Adam and three settings of every method.

    Args:
        dropout: Makes the arm of a dropout rate.
    """
    return (
        Arm(name=PLAIN, method=PLAIN),
        *(
            Arm(
                name=f"PerturbedOPT, γ = {gamma:g}",
                method="PerturbedOPT",
                remedies=(Perturbed(gamma=gamma),),
            )
            for gamma in GAMMAS
        ),
        *(dropout(rate) for rate in RATES),
        *(
            Arm(name=f"SAM, ρ = {radius:g}", method="SAM", remedies=(SAM(radius=radius),))
            for radius in RADII
        ),
    )


@functools.lru_cache(maxsize=2)
def parts_of(
    load: Callable[..., DataSet], sizes: tuple[int, int, int], seed: int, pool: int
) -> Parts:
    """Return training, validation and test images, standardized by the training images.

    Args:
        load: Loads the data set.
        sizes: Numbers of training, validation and test images.
        seed: For the choice of the images.
        pool: Factor by which average pooling shrinks the images.
    """
    size, held, judged = sizes
    data = load(size + held, judged, seed=seed)
    assert data.test is not None
    train, validation = (
        data.select(rows).train for rows in stratified_split(data.targets, (size, held), seed)
    )
    mean, scale = (getattr(train[0], what)((0, 2, 3), keepdim=True) for what in ("mean", "std"))
    parts = {"train": train, "validation": validation, "test": data.test}
    return {
        name: (F.avg_pool2d((inputs - mean) / scale, pool), targets)
        for name, (inputs, targets) in parts.items()
    }


def trained(
    recipe: Recipe, remedies: Sequence[Remedy], seed: int, parts: Parts, every: int, shown: int
) -> Any:
    """Train one arm and record its accuracy, in percent, during training and at the end.

    A run whose loss is no longer finite is judged by the weights of its last complete epoch.
    ``fresh`` in the record is the test accuracy with batch-normalization statistics recomputed
    under the final weights, or None without batch normalization.

    Args:
        recipe: How to train.
        remedies: The remedies of the arm.
        seed: For the initial weights and the order of the batches.
        parts: The data by name, as :func:`parts_of` returns them.
        every: Epochs between two points of a curve.
        shown: Images of each part that a point of a curve uses.
    """
    loop, epochs = Loop(recipe, remedies, seed, (), 0), list[int]()
    curves: dict[str, list[float]] = {name: [] for name in parts}
    for epoch in range(1, recipe.epochs + 1):
        if not loop.stopped:
            loop.advance()
        if epoch % every == 0 or epoch in (1, recipe.epochs):
            epochs.append(epoch)
            for name, (inputs, targets) in parts.items():
                curves[name].append(accuracy(loop.model, inputs[:shown], targets[:shown]))
    model = loop.fitted().model
    final = {name: accuracy(model, *part) for name, part in parts.items()}
    other = with_fresh_statistics(model, parts["train"][0])
    fresh = None if other is None else accuracy(other, *parts["test"])
    return {
        "epochs": epochs,
        "curves": curves,
        "final": final,
        "fresh": fresh,
        "stopped": loop.stopped,
    }


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """Return the percentage of correct predictions, in evaluation mode.

    Args:
        model: The classifier.
        inputs: The images.
        targets: Their classes.

    >>> accuracy(nn.Identity(), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 1]))
    50.0
    """
    model.eval()
    right = [
        (model(rows).argmax(1) == wanted).sum()
        for rows, wanted in zip(inputs.split(CHUNK), targets.split(CHUNK), strict=True)
    ]
    return 100 * float(torch.stack(right).sum()) / len(targets)


@torch.no_grad()
def with_fresh_statistics(model: nn.Module, inputs: Tensor) -> nn.Module | None:
    """Copy the model with batch-normalization statistics recomputed on ``inputs``.

    Args:
        model: The trained model.
        inputs: The images that give the statistics.

    Returns:
        The copy, or None if the model has no batch normalization.
    """
    other = copy.deepcopy(model).eval()
    layers = [module for module in other.modules() if isinstance(module, nn.BatchNorm2d)]
    if not layers:
        return None
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain average over the passes
        layer.train()
    for rows in inputs.split(CHUNK):
        other(rows)
    return other.eval()
