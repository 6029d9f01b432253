"""Training with a monitor at its default stride, against the same loop without it.

One network is trained by blocks of 500 steps, in turn with a monitor and without, so that both lie
at the same place in memory. Its weights end where a training without any monitor ends, bit by bit
(asserted). Times are CPU seconds with one thread. The ratio is the median, over the blocks, of the
CPU time of a monitored block to that of the plain one next to it; at most 1.05 is wanted, and of
the ratio of the sums too. A block holds six readings, one more than its steps are due. All is
measured three times. The log is written to a file, as in use.

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

BATCH, BATCHES, PASSES, WANTED = 128, 100, 5, 1.05
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "MLP 784-256-10": (lambda: MLP((784, 256, 10)), (784,), 8),
    "LeNet-5": (LeNet5, (1, 28, 28), 3),
    "Elman 28-64-10, 28 steps": (lambda: Elman(28, 64, 10), (1, 28, 28), 5),
}
Batches = list[tuple[torch.Tensor, torch.Tensor]]


class Training:
    """A network and how it is trained."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        torch.manual_seed(0)
        self.model = make()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def block(self, batches: Batches, monitor: Monitor | None = None) -> float:
        """The CPU seconds of a block of steps."""
        if monitor is not None:
            monitor.attach(self.model, monitor.steps)
        started = time.process_time()
        for x, y in batches * PASSES:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            if monitor is not None:
                monitor.step(loss)
        seconds = time.process_time() - started
        if monitor is not None:
            monitor.close()
        return seconds


def measured(name: str, folder: Path) -> dict[str, Any]:
    make, shape, blocks = CASES[name]
    random = torch.Generator().manual_seed(1)
    batches = [
        (
            torch.randn(BATCH, *shape, generator=random),
            torch.randint(10, (BATCH,), generator=random),
        )
        for _ in range(BATCHES)
    ]
    training, untouched = Training(make), Training(make)
    monitor = Monitor(log=folder / "run.jsonl")
    plain, own = list[float](), list[float]()
    for number in range(blocks + 1):
        for seconds, watch in ((plain, None), (own, monitor))[:: 1 if number % 2 else -1]:
            seconds.append(training.block(batches, watch))
            untouched.block(batches)
    pairs = zip(untouched.model.parameters(), training.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs), "the monitor changed training"
    ratios = [b / a for a, b in zip(plain[1:], own[1:], strict=True)]
    return {
        "name": name,
        "cpu_ratio": statistics.median(ratios),
        "cpu_ratio_of_sums": sum(own[1:]) / sum(plain[1:]),
        "quartiles": statistics.quantiles(ratios, n=4)[::2],
        "wanted_ratio": WANTED,
        "plain_cpu_seconds": sum(plain[1:]),
        "monitored_cpu_seconds": sum(own[1:]),
        "steps": blocks * BATCHES * PASSES,
        "every": monitor.every,
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
