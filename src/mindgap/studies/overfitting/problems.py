"""The two problems on which remedies are compared: a noisy curve and a subset of MNIST."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mindgap.core import Recipe, Remedy, Subject
from mindgap.data.mnist import mnist
from mindgap.data.sources import Data, source
from mindgap.nets import MLP
from mindgap.studies.perturbed.arms import parts_of
from mindgap.training.ensemble import ensemble
from mindgap.training.fit import fit

NAMES = ("curve", "MNIST")
PARTS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Problem:
    """A recipe that over-fits, with validation and test data.

    Args:
        recipe: How a network is trained.
        parts: Training, validation and test data by name.
    """

    recipe: Recipe
    parts: Mapping[str, Data]

    def trained(
        self, seed: int, remedies: Sequence[Remedy] = (), **changes: Any
    ) -> dict[str, float | None]:
        """Train and return the loss, or the share of wrong answers, on every part.

        Args:
            seed: Of weights and batches.
            remedies: Remedies of the run.
            **changes: Fields of the recipe that differ.
        """
        recipe = self.recipe.replace(**changes) if changes else self.recipe
        if any(remedy.sequential_hook() for remedy in remedies):
            run = fit(recipe, remedies, seed=seed, evaluate_every=0)
        else:
            (run,) = ensemble(recipe, [seed], remedies=remedies, keep_history=False)
        kind = "loss" if recipe.loss == "mse" else "error"
        found: dict[str, float | None] = {}
        for name in PARTS:
            subject = Subject(run.model, recipe.loss, self.parts[name], check_determinism=False)
            values = subject.losses() if kind == "loss" else subject.errors()
            value = float(values.double().mean())
            found[name] = value if torch.isfinite(torch.tensor(value)) else None
        return found


def problem(name: str, sizes: tuple[int, int, int], seed: int, epochs: int, width: int) -> Problem:
    """Make one of the two problems, with samples of its own for every seed.

    Args:
        name: ``"curve"`` or ``"MNIST"``.
        sizes: Numbers of training, validation and test samples.
        seed: Of the samples.
        epochs: Passes over the training data.
        width: Width of both hidden layers.

    >>> made = problem("curve", (20, 10, 10), seed=0, epochs=2, width=4)
    >>> sorted(made.trained(0))
    ['test', 'train', 'validation']
    """
    make = {"curve": _curve, "MNIST": _mnist}[name]
    parts, network, loss, rate = make(sizes, seed, width)
    recipe = Recipe(
        model=network,
        train=parts["train"],
        loss=loss,
        epochs=epochs,
        batch_size=max(1, sizes[0] // 10),
        learning_rate=rate,
    )
    return Problem(recipe, parts)


Made = tuple[Mapping[str, Data], Callable[[], MLP], str, float]


def _curve(sizes: tuple[int, int, int], seed: int, width: int) -> Made:
    drawn = source("heteroscedastic").samples(sizes, seed)
    parts = dict(zip(PARTS, drawn, strict=True))
    return parts, lambda: MLP((1, width, width, 1)), "mse", 0.01


def _mnist(sizes: tuple[int, int, int], seed: int, width: int) -> Made:
    parts = parts_of(mnist, sizes, seed, 2)
    return parts, lambda: MLP((196, width, width, 10)), "cross_entropy", 0.003
