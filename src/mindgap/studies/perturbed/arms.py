"""The arms of the studies of PerturbedOPT, and one run of an arm with its curves."""

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
from mindgap.remedies.perturbed import Perturbed
from mindgap.remedies.sam import SAM
from mindgap.training.fit import Loop

GAMMAS, RATES, RADII = (
    (0.3, 1.0, 3.0),
    (0.1, 0.3, 0.5),
    (0.02, 0.05, 0.1),
)  # three candidates a method
METHODS = ("PerturbedOPT", "dropout", "SAM")
PLAIN = "Adam"
PUBLISHED = Perturbed(eta=0.01, gamma=10.0, epsilon=1e-5)
CHUNK = 500  # images a pass where nothing is trained

Parts = Mapping[str, tuple[Tensor, Tensor]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """A way to train; ``control`` is the arm that it is compared with.

    ``changes`` are fields of the recipe that differ from those of the other arms.
    """

    name: str
    method: str
    remedies: tuple[Remedy, ...] = ()
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    control: str = PLAIN


def candidates(dropout: Callable[[float], Arm]) -> tuple[Arm, ...]:
    """Plain Adam, and three settings of every method; ``dropout`` makes the arm of a rate."""
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
    """Train, validation and test images that ``pool`` made smaller, standardized by the training images."""
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
    """Train, and tell the accuracy in percent on all parts: at the end, and on ``shown`` images on the way.

    A run whose loss leaves the finite numbers is judged by the weights of its last whole epoch.
    ``fresh`` is the test accuracy after the statistics of batch normalization, if there is any,
    were taken anew under the final weights.
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
    """Share of right answers in evaluation mode, in percent.

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
    """A copy whose batch normalization has the mean and variance of ``inputs`` by its weights; None without such."""
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
