"""Many members at once against the loop that a user would write: one model after the other.

Both sides start from the same weights, see the same batches and end at the same weights (asserted
to 1e-4 of their norm). Times are CPU seconds of the whole job, from the seeds to the trained
models, with one thread; neither side keeps curves.

    python benchmarks/ensemble.py --json ensemble.json
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import timing
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core.recipe import Recipe
from mindgap.nets import MLP, LeNet5
from mindgap.training.batches import batches_of
from mindgap.training.ensemble import ensemble
from mindgap.training.fitted import Fitted

OPTIMIZERS: dict[Any, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
}
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    wanted: float
    recipe: Recipe
    seeds: Sequence[int]
    loss: Callable[[Tensor, Tensor], Tensor]
    sample_weights: Tensor | None = None
    peer_members: int | None = None  # a loop that would take hours is timed on a part and scaled
    repeats: int = 1

    def peer(self) -> list[nn.Module]:
        count = self.peer_members or len(self.seeds)
        rows = [None] * count if self.sample_weights is None else self.sample_weights[:count]
        return [
            plain_loop(self, seed, row) for seed, row in zip(self.seeds[:count], rows, strict=True)
        ]

    def own(self) -> tuple[Fitted, ...]:
        return ensemble(
            self.recipe, self.seeds, sample_weights=self.sample_weights, keep_history=False
        )

    def warm_up(self) -> None:
        brief = dataclasses.replace(
            self, recipe=self.recipe.replace(epochs=1), seeds=self.seeds[:2], peer_members=2
        )
        if self.sample_weights is not None:
            brief = dataclasses.replace(brief, sample_weights=self.sample_weights[:2])
        brief.own(), brief.peer()

    def run(self) -> dict[str, Any]:
        self.warm_up()
        peer, own, error = [0.0, 0.0], [0.0, 0.0], 0.0
        for _ in range(self.repeats):
            members, *own_time = timing.timed(self.own)
            models, *peer_time = timing.timed(self.peer)
            own, peer = _added(own, own_time), _added(peer, peer_time)
            error = max(error, largest_difference(models, members))
        assert error < TOLERANCE, f"{self.name}: the weights differ by {error:.2e} of their norm"
        scale = len(self.seeds) / len(models)
        note = (
            f"The loop ran {len(models)} of {len(self.seeds)} models; its time is scaled. "
            if scale > 1
            else ""
        )
        note += f"Weights agree to {error:.0e}."
        return timing.figures(
            self.name, peer, own, wanted=self.wanted, scale=scale, note=note, difference=error
        )


def plain_loop(case: Case, seed: int, weights: Tensor | None) -> nn.Module:
    recipe = case.recipe
    inputs, targets = recipe.train
    torch.manual_seed(seed)
    model = recipe.model()
    settings = {"momentum": recipe.momentum} if recipe.momentum else {}
    optimizer = OPTIMIZERS[recipe.optimizer](
        model.parameters(), lr=recipe.learning_rate, **settings
    )
    whole = recipe.batch_size >= len(targets)
    for epoch in range(1, recipe.epochs + 1):
        if whole:
            optimizer.zero_grad()
            output = model(inputs)
            loss = (
                case.loss(output, targets)
                if weights is None
                else (weights * (output - targets).square()[:, 0]).mean()
            )
            loss.backward()
            optimizer.step()
            continue
        for index in batches_of(len(targets), recipe.batch_size, seed, epoch):
            optimizer.zero_grad()
            case.loss(model(inputs[index]), targets[index]).backward()
            optimizer.step()
    return model


def largest_difference(models: Sequence[nn.Module], members: Sequence[Fitted]) -> float:
    return max(
        _difference(model, member.model) for model, member in zip(models, members, strict=False)
    )


def _difference(left: nn.Module, right: nn.Module) -> float:
    one, two = (
        nn.utils.parameters_to_vector(model.parameters()).detach() for model in (left, right)
    )
    return float((one - two).norm() / one.norm())


def _added(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(left, right, strict=True)]


def cases() -> list[Case]:
    random = torch.Generator().manual_seed(0)
    points = torch.randn(300, 2, generator=random)
    product = points.prod(1, keepdim=True).sin()
    line = torch.linspace(-2, 2, 16)[:, None]
    table = torch.randn(404, 13, generator=random)
    price = table @ torch.randn(13, 1, generator=random) + torch.randn(404, 1, generator=random)
    images = torch.randn(1024, 1, 28, 28, generator=random)
    labels = torch.randint(0, 10, (1024,), generator=random)
    weights = torch.rand(4000, 404, generator=random)
    return [
        Case(
            "50 seeds of MLP 2-4-1, batches of 100 of 300",
            20,
            Recipe(
                model=lambda: MLP((2, 4, 1), "tanh"), train=(points, product), loss="mse", optimizer="sgd",
                learning_rate=0.1, epochs=150, batch_size=100,
            ),
            range(50),
            F.mse_loss,
        ),
        Case(
            "40 seeds of MLP 1-8-1, all 16 points, Adam",
            100,
            Recipe(
                model=lambda: MLP((1, 8, 1), "tanh"), train=(line, line.sin()), loss="mse", optimizer="adam",
                learning_rate=0.01, epochs=1200, batch_size=16,
            ),
            range(40),
            F.mse_loss,
        ),
        Case(
            "4000 weighted linear models 13-1, all 404 samples",
            300,
            Recipe(
                model=lambda: nn.Linear(13, 1), train=(table, price), loss="mse", optimizer="sgd",
                learning_rate=0.05, epochs=1000, batch_size=404,
            ),
            range(4000),
            F.mse_loss,
            sample_weights=weights,
            peer_members=100,
        ),
        Case(
            "8 seeds of LeNet-5, 28 x 28, batches of 64",
            1.2,
            Recipe(
                model=LeNet5, train=(images, labels), loss="cross_entropy", optimizer="sgd", momentum=0.9,
                learning_rate=0.01, epochs=2, batch_size=64,
            ),
            range(8),
            F.cross_entropy,
            repeats=3,
        ),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    rows = []
    with timing.alone():
        for case in cases():
            rows.append(case.run())
            timing.show(rows[-1])
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
