"""Training with a monitor at its default stride, against the same loop without it.

Both sides train in turn in one process, a block of steps at a time, from the same weights on the
same batches, and end at the same weights, bit by bit (asserted). Times are CPU seconds with one
thread. The ratio is the median, over the blocks, of the CPU time of a monitored block to that of the plain
one next to it; at most 1.05 is wanted, and of the ratio of the sums too, which a few slow blocks decide on a busy
machine. Every block holds one reading. All is measured three times. The log is written to a file, as in use.

    python benchmarks/monitor.py --json monitor.json
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timing
import torch
import torch.nn.functional as F
from torch import nn

from mindgap import Monitor
from mindgap.nets import MLP, Elman, LeNet5

BATCH, BLOCK, WANTED = 128, 100, 1.05
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "MLP 784-256-10": (lambda: MLP((784, 256, 10)), (784,), 40),
    "LeNet-5": (LeNet5, (1, 28, 28), 8),
    "Elman 28-64-10, 28 steps": (lambda: Elman(28, 64, 10), (1, 28, 28), 10),
}


class Side:
    """One of the two trainings."""

    def __init__(self, make: Callable[[], nn.Module], log: Path | None) -> None:
        torch.manual_seed(0)
        self.model = make()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.monitor = None if log is None else Monitor(self.model, log=log)
        self.blocks: list[float] = []

    def block(self, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        started = time.process_time()
        for x, y in batches:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            if self.monitor is not None:
                self.monitor.step(loss)
        self.blocks.append(time.process_time() - started)


def measured(name: str, folder: Path) -> dict[str, Any]:
    make, shape, blocks = CASES[name]
    random = torch.Generator().manual_seed(1)
    batches = [
        (
            torch.randn(BATCH, *shape, generator=random),
            torch.randint(10, (BATCH,), generator=random),
        )
        for _ in range(BLOCK)
    ]
    plain, own = Side(make, None), Side(make, folder / "run.jsonl")
    for number in range(blocks + 1):
        for side in (plain, own) if number % 2 else (own, plain):
            side.block(batches)
    pairs = zip(plain.model.parameters(), own.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs), "the monitor changed training"
    assert own.monitor is not None
    own.monitor.close()
    ratios = [b / a for a, b in zip(plain.blocks[1:], own.blocks[1:], strict=True)]
    total = sum(own.blocks[1:]) / sum(plain.blocks[1:])
    return {
        "name": name,
        "cpu_ratio": statistics.median(ratios),
        "cpu_ratio_of_sums": total,
        "quartiles": statistics.quantiles(ratios, n=4)[::2],
        "wanted_ratio": WANTED,
        "plain_cpu_seconds": sum(plain.blocks[1:]),
        "monitored_cpu_seconds": sum(own.blocks[1:]),
        "steps": blocks * BLOCK,
        "every": own.monitor.every,
        "batch_size": BATCH,
        "note": "The weights are bit-identical.",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=3, help="times that all cases are measured")
    arguments = parser.parse_args()
    rows = []
    with timing.alone(), tempfile.TemporaryDirectory() as folder:
        for run, name in itertools.product(range(1, arguments.runs + 1), CASES):
            row = measured(name, Path(folder))
            rows.append({**row, "name": f"{name}, run {run}"})
            ratios = row["cpu_ratio"], row["cpu_ratio_of_sums"]
            verdict = "ok  " if max(ratios) <= WANTED else "SLOW"
            print(f"{verdict} {name}: {ratios[0]:.3f}x CPU, of sums {ratios[1]:.3f}x", flush=True)
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
