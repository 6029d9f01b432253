"""What one pass of all diagnoses costs: 10,000 training and 10,000 test samples of 784 inputs, an MLP."""

from __future__ import annotations

import argparse
import sys

import torch
from timing import alone, timed, write

from mindgap import Recipe, Subject, fit
from mindgap.core import DataUnavailableError
from mindgap.data.generators import teacher
from mindgap.data.mnist import mnist
from mindgap.diagnoses.diagnose import diagnose
from mindgap.nets import MLP

SAMPLES, WANTED = 10_000, 5.0


def data() -> tuple[str, tuple[torch.Tensor, ...]]:
    """MNIST where it is, otherwise inputs of the same shape that a random net labels."""
    try:
        found = mnist(size=SAMPLES, test_size=SAMPLES)
        name = "MNIST"
    except DataUnavailableError:
        found = teacher(size=SAMPLES, test_size=SAMPLES, widths=(784, 30, 10))
        name = "random inputs"
    return name, (*found.train, *found.test)


def subject(parts: tuple[torch.Tensor, ...]) -> Subject:
    recipe = Recipe(
        model=lambda: MLP(widths=(784, 100, 10)), train=parts[:2], test=parts[2:], epochs=5
    )
    return fit(recipe, seed=0).subject()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    name, parts = data()
    with alone():
        diagnose(subject(parts))  # imports and first calls are not counted
        runs = [timed(lambda: diagnose(subject(parts))) for _ in range(arguments.repeats)]
        training = min(timed(lambda: subject(parts))[1] for _ in range(arguments.repeats))
    found, cpu, wall = min(runs, key=lambda run: run[1])
    cpu, wall = cpu - training, wall - training
    slowest = sorted(found.checked, key=lambda row: -row.seconds)
    row = {
        "name": f"all diagnoses on {SAMPLES:,} + {SAMPLES:,} samples of 784 inputs ({name})",
        "own_cpu_seconds": cpu,
        "own_wall_seconds": wall,
        "wanted_at_most": WANTED,
        "training_cpu_seconds": training,
        "cost_ratio": cpu / training,
        "by_diagnosis": {one.name: round(one.seconds, 3) for one in slowest},
        "note": "CPU seconds without training; the ratio is to five epochs of training",
    }
    print(
        f"{'ok  ' if cpu <= WANTED else 'SLOW'} {row['name']}: {cpu:.2f} s CPU (at most "
        f"{WANTED:g}), {row['cost_ratio']:.2f}x five epochs of training"
    )
    for one in slowest[:8]:
        print(f"     {one.name:28} {one.seconds:.2f} s")
    if arguments.json:
        write(arguments.json, [row])
    if cpu > WANTED:
        sys.exit(1)


if __name__ == "__main__":
    main()
