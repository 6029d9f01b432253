"""What DARC1 and frozen gates cost, as a multiple of the plain training step of 784-256-256-10.

All sides take turns, a few steps each, in many rounds; a ratio is the median over the rounds of CPU
seconds over those of the plain step in the same round. One thread, Adam. Here a ratio is a price: the
smaller, the better, and ``wanted_ratio`` is the largest that is wanted. The penalty takes the same time
at any batch size, so the smaller step at batch 64 pays the larger share.

    python benchmarks/darc.py --json darc.json
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import timing
import torch
import torch.nn.functional as F
from torch import Tensor

from mindgap.core import TrainingState
from mindgap.nets import MLP
from mindgap.ops.models.phases import gates_of
from mindgap.remedies import LogitPenalty, TwoPhase

Step = Callable[[Tensor, Tensor], None]
WIDTHS = (784, 256, 256, 10)
# Batch size, side and the largest price that is wanted.
WANTED = {
    (256, "darc1"): 1.05,
    (64, "darc1"): 1.15,
    (256, "mean"): 1.05,
    (64, "mean"): 1.15,
    (256, "darc"): 1.10,
    (64, "darc"): 1.25,
    (256, "phase 2"): 1.60,
    (64, "phase 2"): 2.00,
}


def step_of(side: str) -> Step:
    torch.manual_seed(0)
    model = MLP(WIDTHS)
    if side == "phase 2":
        TwoPhase().attach(model)
        with torch.no_grad():
            gates_of(model).freeze()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    penalty = LogitPenalty(form=side).penalty if side in ("darc1", "mean", "darc") else None
    state = TrainingState(model=model, optimizer=optimizer, step=2)

    def step(inputs: Tensor, targets: Tensor) -> None:
        optimizer.zero_grad()
        output = model(inputs)
        loss = F.cross_entropy(output, targets)
        if penalty is not None:
            loss = loss + penalty(state, output, targets, None)
        loss.backward()
        optimizer.step()

    return step


def batches(size: int, count: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(size, WIDTHS[0], generator=random),
            torch.randint(0, 10, (size,), generator=random),
        )
        for _ in range(count)
    ]


def run(size: int, rounds: int, steps: int) -> list[dict[str, Any]]:
    names = ["plain", *(side for own, side in WANTED if own == size)]
    sides, data = {name: step_of(name) for name in names}, batches(size, steps)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(rounds + 1):  # the first round warms up
        turn = number % len(names)  # no side always follows the same one, whose caches it finds
        for name in names[turn:] + names[:turn]:
            _, cpu, wall = timing.timed(lambda step=sides[name]: [step(*batch) for batch in data])
            if number:
                times[name].append((cpu / steps, wall / steps))
    return [row(size, name, times) for name in names[1:]]


def row(size: int, name: str, times: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    own, plain = times[name], times["plain"]

    def price(place: int) -> float:
        return statistics.median(a[place] / b[place] for a, b in zip(own, plain, strict=True))

    return {
        "name": f"{name} over the plain step, 784-256-256-10, batch {size}",
        "cpu_ratio": price(0),
        "wall_ratio": price(1),
        "wanted_ratio": WANTED[size, name],
        "least_cpu_ratio": min(own)[0] / min(plain)[0],
        "peer_cpu_seconds": statistics.median(cpu for cpu, _ in plain),
        "own_cpu_seconds": statistics.median(cpu for cpu, _ in own),
        "note": "A price, at most the wanted one. Seconds are medians per step.",
    }


def show(found: dict[str, Any]) -> None:
    verdict = "ok  " if found["cpu_ratio"] <= found["wanted_ratio"] else "SLOW"
    print(
        f"{verdict} {found['name']}: {found['cpu_ratio']:.3f}x CPU, {found['least_cpu_ratio']:.3f}x "
        f"between the fastest rounds (wanted at most {found['wanted_ratio']:.2f}x; "
        f"{1e3 * found['peer_cpu_seconds']:.2f} ms to {1e3 * found['own_cpu_seconds']:.2f} ms)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=8, help="steps of a side in one round")
    arguments = parser.parse_args()
    rows = []
    with timing.alone():
        for size in (256, 64):
            for found in run(size, arguments.rounds, arguments.steps):
                rows.append(found)
                show(found)
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
