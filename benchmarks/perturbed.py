"""What a perturbed step costs, beside the plain step of the same optimizer and a step of SAM.

The three sides take turns, a few steps each, in many rounds; a ratio is the median over the rounds
of CPU seconds over those of the plain optimizer in the same round. One thread. Here a ratio is a
price: the smaller, the better, and ``wanted_ratio`` is the largest that is wanted. "Adam" is what
torch gives by default on a CPU, "fused Adam" its kernel of one pass (``fused=True``), and every row
names both sides. Noise comes from the pool of pre-drawn numbers, as it does unless told otherwise;
one row draws it afresh. Compiled loops do the perturbation, so Numba must be installed; in the last
two rows torch does it.

    python benchmarks/perturbed.py --json perturbed.json
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

import timing
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.ops.perturbed import block
from mindgap.ops.perturbed.sharpness import sharpness_gradient, steepest
from mindgap.training.perturbed_optimizer import PerturbedOptimizer

BATCH = 128


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 118), nn.ReLU(), nn.Linear(118, 10),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    model: Callable[[], nn.Module]
    wanted: float
    fused: bool = False  # torch's one-kernel Adam under the perturbation and under SAM
    plain_fused: bool = False  # the same on the plain side
    pool: int = 2**20
    compiled: bool = True

    def sides(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        return {"plain": self._plain(), "perturbed": self._perturbed(), "sam": self._sam()}

    def _start(self, fused: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = self.model()
        return model, torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused)

    def _plain(self) -> Callable[[Tensor, Tensor], None]:
        model, optimizer = self._start(self.plain_fused)

        def step(inputs: Tensor, targets: Tensor) -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

        return step

    def _perturbed(self) -> Callable[[Tensor, Tensor], None]:
        model, base = self._start(self.fused)
        optimizer = PerturbedOptimizer(base, eta=0.01, gamma=10, pool=self.pool)

        def step(inputs: Tensor, targets: Tensor) -> None:
            optimizer.zero_grad()
            with optimizer.perturbed():
                F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

        return step

    def _sam(self) -> Callable[[Tensor, Tensor], None]:
        model, optimizer = self._start(self.fused)
        weights, climb = list(model.parameters()), steepest(0.05)

        def step(inputs: Tensor, targets: Tensor) -> None:
            def closure() -> Tensor:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(inputs), targets)
                loss.backward()
                return loss

            sharpness_gradient(closure, weights, model, climb)
            optimizer.step()

        return step

    def run(self, rounds: int, steps: int) -> dict[str, Any]:
        block.SMALLEST = 1 if self.compiled else 2**62
        sides, times, walls = self.sides(), {}, {}
        batches = _batches(steps)
        for side in sides.values():  # to warm up
            _steps(side, batches)
        for _ in range(rounds):
            for name, side in sides.items():
                _, cpu, wall = timing.timed(lambda side=side: _steps(side, batches))
                times.setdefault(name, []).append(cpu / steps)
                walls.setdefault(name, []).append(wall / steps)
        return self._row(times, walls)

    def _row(self, times: dict[str, list[float]], walls: dict[str, list[float]]) -> dict[str, Any]:
        def price(name: str, of: dict[str, list[float]] = times) -> float:
            return statistics.median(
                own / plain for own, plain in zip(of[name], of["plain"], strict=True)
            )

        return {
            "name": self.name,
            "cpu_ratio": price("perturbed"),
            "wall_ratio": price("perturbed", walls),
            "wanted_ratio": self.wanted,
            "sam_cpu_ratio": price("sam"),
            "least_cpu_ratio": min(times["perturbed"]) / min(times["plain"]),
            "peer_cpu_seconds": statistics.median(times["plain"]),
            "own_cpu_seconds": statistics.median(times["perturbed"]),
            "note": f"A price, at most the wanted one. SAM pays {price('sam'):.2f}. Seconds are medians a step.",
        }


def _steps(step: Callable[[Tensor, Tensor], None], batches: list[tuple[Tensor, Tensor]]) -> None:
    for inputs, targets in batches:
        step(inputs, targets)


def _batches(count: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(BATCH, 1, 28, 28, generator=random),
            torch.randint(0, 10, (BATCH,), generator=random),
        )
        for _ in range(count)
    ]


def show(row: dict[str, Any]) -> None:
    verdict = "ok  " if row["cpu_ratio"] <= row["wanted_ratio"] else "SLOW"
    print(
        f"{verdict} {row['name']}: {row['cpu_ratio']:.2f}x CPU of the plain step, "
        f"{row['least_cpu_ratio']:.2f}x "
        f"between the fastest rounds (wanted at most {row['wanted_ratio']:.2f}x), SAM "
        f"{row['sam_cpu_ratio']:.2f}x "
        f"({1e3 * row['peer_cpu_seconds']:.2f} ms to {1e3 * row['own_cpu_seconds']:.2f} ms)",
        flush=True,
    )


CNN, MLP = "CNN of 100,508 weights, batch 128", "MLP 784-256-10, batch 128"
CASES = [
    Case(f"PerturbedOPT with Adam over Adam, {CNN}", convolutional, 1.10),
    Case(f"PerturbedOPT with Adam over Adam, {MLP}", perceptron, 1.25),
    Case(f"PerturbedOPT with fused Adam over Adam, {MLP}", perceptron, 1.25, fused=True),
    Case(
        f"PerturbedOPT with fused Adam over fused Adam, {CNN}",
        convolutional,
        1.10,
        fused=True,
        plain_fused=True,
    ),
    Case(
        f"PerturbedOPT with fused Adam over fused Adam, {MLP}",
        perceptron,
        1.25,
        fused=True,
        plain_fused=True,
    ),
    Case(f"PerturbedOPT with Adam over Adam, {MLP}, noise drawn afresh", perceptron, 1.25, pool=0),
    Case(
        f"PerturbedOPT with fused Adam over Adam, {MLP}, without Numba",
        perceptron,
        1.25,
        fused=True,
        compiled=False,
    ),
    Case(
        f"PerturbedOPT with fused Adam over fused Adam, {MLP}, without Numba",
        perceptron,
        1.25,
        fused=True,
        plain_fused=True,
        compiled=False,
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=8, help="steps of a side in one round")
    arguments = parser.parse_args()
    rows = []
    with timing.alone():
        if block.kernels_for(torch.device("cpu"), 2**30) is None:
            parser.error(
                "Numba must be installed for this benchmark, got none. Run: pip install "
                "'mindgap[speed]'."
            )
        for case in CASES:
            rows.append(case.run(arguments.rounds, arguments.steps))
            show(rows[-1])
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
