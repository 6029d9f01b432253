"""Leaving out each of 500 samples in one vectorized call, against one training after the other.

The peers are ``fit`` with a weight of zero, and the loop that a user would write. All see the same
batches and end at the same weights (asserted to 1e-5). Times are CPU seconds with one thread; the
peers run a part of the 501 trainings and their time is scaled.

    python benchmarks/stability.py --json stability.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import timing
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import Recipe, Subject
from mindgap.measures import SelfInfluence
from mindgap.nets import MLP
from mindgap.training.batches import batches_of
from mindgap.training.fit import fit
from mindgap.training.leave_one_out import LeftOut, leave_one_out, removal_weights

SAMPLES, TOLERANCE, PART = 500, 1e-5, 15
SETTINGS: dict[str, dict[str, Any]] = {
    "100 epochs of full-batch SGD": {
        "optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01,
        "epochs": 100, "batch_size": SAMPLES,
    },
    "30 epochs of Adam, batch size 64": {
        "optimizer": "adam", "learning_rate": 0.01, "epochs": 30, "batch_size": 64,
    },
}  # fmt: skip


def noisy_problem(seed: int = 0) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * SAMPLES, 20, generator=random)
    y = (x @ torch.randn(20, generator=random) + 0.5 * x[:, 0] * x[:, 1] > 0).long()
    wrong = torch.rand(2 * SAMPLES, generator=random) < 0.1
    y = torch.where(wrong, 1 - y, y)
    return (x[:SAMPLES], y[:SAMPLES]), (x[SAMPLES:], y[SAMPLES:])


def by_fit(recipe: Recipe, weights: Tensor) -> nn.Module:
    return fit(recipe.replace(sample_weights=weights), evaluate_every=0).model


def by_loop(recipe: Recipe, weights: Tensor) -> nn.Module:
    x, y = recipe.train
    torch.manual_seed(0)
    model = recipe.model()
    optimizer = recipe.optimize(model.parameters())
    for epoch in range(1, recipe.epochs + 1):
        for index in batches_of(len(y), recipe.batch_size, 0, epoch):
            optimizer.zero_grad()
            losses = F.cross_entropy(model(x[index]), y[index], reduction="none")
            (losses * weights[index]).mean().backward()
            optimizer.step()
    return model


def difference(models: list[nn.Module], found: LeftOut) -> float:
    return max(
        float((one - two).detach().abs().max())
        for model, member in zip(models, found.members, strict=False)
        for one, two in zip(model.parameters(), member.model.parameters(), strict=True)
    )


def compared(
    name: str,
    recipe: Recipe,
    alone: Callable[[Recipe, Tensor], nn.Module],
    wanted: float,
    found: LeftOut,
    own: tuple[float, float],
) -> dict[str, Any]:
    rows = removal_weights(None, found.places, SAMPLES)[:PART]
    alone(recipe.replace(epochs=1), rows[0])
    models, *peer = timing.timed(lambda: [alone(recipe, row) for row in rows])
    error = difference(models, found)
    assert error < TOLERANCE, f"{name}: the weights differ by {error:.2e}"
    return timing.figures(
        name,
        peer,
        own,
        wanted=wanted,
        scale=len(found.members) / PART,
        note=f"Weights agree to {error:.0e}.",
        difference=error,
    )


def measured(name: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    train, test = noisy_problem()
    recipe = Recipe(model=lambda: MLP((20, 32, 2)), train=train, test=test, **settings)
    subject = fit(recipe, evaluate_every=0).subject()
    leave_one_out(short(subject), torch.arange(3))
    found, *own = timing.timed(lambda: leave_one_out(subject, torch.arange(SAMPLES)))
    result, *cost = timing.timed(lambda: SelfInfluence()(subject))
    rises = {"leave_one_out": float(found.own.mean()), "gap": result.terms["gap"]}
    rows = [
        compared(f"{name}, against {peer}", recipe, alone, wanted, found, (own[0], own[1])) | rises
        for peer, alone, wanted in (("fit", by_fit, 20), ("a plain loop", by_loop, 5))
    ]
    influence = timing.figures(
        f"{name}: self-influence against leave-one-out in one call",
        own,
        cost,
        wanted=1,
        note="Not the same numbers: an estimate.",
        self_influence=float(result),
    )
    return [*rows, influence | rises]


def short(subject: Subject) -> Subject:
    """The same with one epoch, to warm up."""
    assert subject.recipe is not None
    recipe = subject.recipe.replace(epochs=1)
    return Subject(subject.model, subject.loss, subject.train, recipe=recipe)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with timing.alone():
        for name, settings in SETTINGS.items():
            found = measured(name, settings)
            rows += found
            for row in found:
                timing.show(row)
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
