"""What all diagnoses cost, and a whole ``examine`` of LeNet-5 on MNIST and of a table of a million rows.

Every case runs in a process of its own, after a training that is not counted, on one thread. The
limits of ``examine`` are for two cores, so that one core has to be faster than asked. ``--threads
2`` uses both; on a busy machine two threads wait for each other by spinning, which counts as CPU
time and made it several times as long. The peak of memory is that of the process while it examines,
with torch and the data.

    MINDGAP_DATA=~/data python benchmarks/diagnose.py --json diagnose.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from timing import alone, timed, write

from mindgap import Recipe, Subject, examine, fit
from mindgap.core import DataUnavailableError
from mindgap.data.generators import teacher
from mindgap.data.mnist import mnist
from mindgap.diagnoses.diagnose import diagnose
from mindgap.nets import MLP, LeNet5
from mindgap.report.report import Report
from mindgap.training.fitted import Fitted

SAMPLES, WANTED = 10_000, 5.0
ROWS, COLUMNS, COPIES = 1_000_000, 20, 10_000
Data = tuple[torch.Tensor, ...]


def data() -> tuple[str, Data]:
    """MNIST where it is, otherwise inputs of the same shape that a random net labels."""
    try:
        found = mnist(size=SAMPLES, test_size=SAMPLES)
        name = "MNIST"
    except DataUnavailableError:
        found = teacher(size=SAMPLES, test_size=SAMPLES, widths=(784, 30, 10))
        name = "random inputs"
    return name, (*found.train, *found.test)


def subject(parts: Data) -> Subject:
    recipe = Recipe(
        model=lambda: MLP(widths=(784, 100, 10)), train=parts[:2], test=parts[2:], epochs=5
    )
    return fit(recipe, seed=0).subject()


def diagnoses(repeats: int) -> dict[str, Any]:
    """All diagnoses of an MLP: 10,000 training and 10,000 test samples of 784 inputs."""
    name, parts = data()
    diagnose(subject(parts))  # imports and first calls are not counted
    runs = [timed(lambda: diagnose(subject(parts))) for _ in range(repeats)]
    training = min(timed(lambda: subject(parts))[1] for _ in range(repeats))
    found, cpu, wall = min(runs, key=lambda run: run[1])
    cpu, wall = cpu - training, wall - training
    return {
        "name": f"all diagnoses on {SAMPLES:,} + {SAMPLES:,} samples of 784 inputs ({name})",
        "own_cpu_seconds": cpu,
        "own_wall_seconds": wall,
        "wanted_at_most": WANTED,
        "training_cpu_seconds": training,
        "cost_ratio": cpu / training,
        "by_diagnosis": _slowest({one.name: one.seconds for one in found.checked}),
        "note": "CPU seconds without training; the ratio is to five epochs of training",
    }


def table() -> Fitted:
    """A table in which a hundredth of the training rows come back, with noise, as test rows."""
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(ROWS, COLUMNS, generator=random)
    noise = torch.randn(ROWS, generator=random)
    score = inputs[:, :5].sum(1) + inputs[:, 5] * inputs[:, 6] + noise
    targets = (score > 0).long()
    held = ROWS * 4 // 5
    copied = torch.randperm(held, generator=random)[:COPIES]
    places = slice(held, held + COPIES)
    inputs[places] = inputs[copied] + 2e-4 * torch.randn(COPIES, COLUMNS, generator=random)
    targets[places] = targets[copied]
    recipe = Recipe(
        model=lambda: MLP(widths=(COLUMNS, 32, 2)),
        train=(inputs[:held], targets[:held]),
        test=(inputs[held:], targets[held:]),
        epochs=1,
        batch_size=2048,
        learning_rate=0.01,
    )
    return fit(recipe, seed=0, evaluate_every=0)


def digits() -> Fitted:
    """LeNet-5 after an epoch on all of MNIST."""
    found = mnist()
    recipe = Recipe(
        model=LeNet5,
        train=found.train,
        test=found.test,
        epochs=1,
        batch_size=128,
        learning_rate=0.002,
        classes=found.classes,
    )
    return fit(recipe, seed=0, evaluate_every=0)


def whole(name: str, make: Any, seconds: float, threads: int) -> dict[str, Any]:
    """Examine with the default measures, bounds and diagnoses, as a user does."""
    fitted, before = make(), _peak()
    Path("/proc/self/clear_refs").write_text("5")  # the peak of the training is not ours
    torch.set_num_threads(threads)
    report, cpu, wall = timed(lambda: examine(fitted))
    assert isinstance(report, Report)
    failed = [row.name for row in report.checked if row.outcome == "failed"]
    assert not failed, failed
    cost = {card.result.name: card.result.cost.get("cpu_seconds", 0.0) for card in report.cards}
    return {
        "name": f"examine of {name}",
        "own_cpu_seconds": cpu,
        "own_wall_seconds": wall,
        "wanted_at_most": seconds,
        "peak_megabytes": _peak(),
        "peak_megabytes_of_training": before,
        "threads": threads,
        "load_average": os.getloadavg()[0],
        "findings": [finding.name for finding in report.findings],
        "undefined": {
            card.result.name: card.result.reason
            for card in report.cards
            if card.result.status == "undefined"
        },
        "by_measure": _slowest(cost),
        "by_diagnosis": _slowest({row.name: row.seconds for row in report.checked}),
        "note": "all default measures, bounds and diagnoses; the limit is for two cores",
    }


def _slowest(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(one, 3) for name, one in sorted(seconds.items(), key=lambda pair: -pair[1])}


def _peak() -> float:
    """Megabytes, of 1,000,000 bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1.024e-3


def run(case: str, repeats: int, threads: int) -> dict[str, Any]:
    if case == "diagnoses":
        with alone():
            return diagnoses(repeats)
    with alone():
        if case == "table":
            name = f"an MLP on {ROWS:,} × {COLUMNS} numbers, with near copies"
            row = whole(name, table, 30.0, threads)
            assert "near-copies" in row["findings"]
            return row
        return whole("LeNet-5 on 60,000 + 10,000 digits of MNIST", digits, 90.0, threads)


CASES = ("diagnoses", "digits", "table")


def show(row: dict[str, Any]) -> None:
    cpu, wall, most = row["own_cpu_seconds"], row["own_wall_seconds"], row["wanted_at_most"]
    memory = f", {row['peak_megabytes']:.0f} MB" if "peak_megabytes" in row else ""
    verdict = "ok  " if cpu <= most else "SLOW"
    print(f"{verdict} {row['name']}: {cpu:.2f} s CPU, {wall:.2f} s wall (at most {most:g}){memory}")
    for key in ("by_measure", "by_diagnosis"):
        for name, seconds in list(row.get(key, {}).items())[:8]:
            print(f"     {name:28} {seconds:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="threads of examine")
    parser.add_argument("--only", choices=CASES, help="run one case")
    parser.add_argument("--child", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(run(arguments.child, arguments.repeats, arguments.threads)))
        return
    rows = []
    for case in CASES if arguments.only is None else (arguments.only,):
        settings = ["--repeats", str(arguments.repeats), "--threads", str(arguments.threads)]
        command = [sys.executable, str(Path(__file__)), "--child", case, *settings]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.append(json.loads(output.splitlines()[-1]))
        show(rows[-1])
        if arguments.json:
            write(arguments.json, rows)
    if any(row["own_cpu_seconds"] > row["wanted_at_most"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
