"""What all diagnoses cost, and a whole ``examine``: of small nets on many samples, and of large nets.

The small ones are LeNet-5 on MNIST and a perceptron on a table of a million rows. The large ones, for
which the work of every measure is limited, are a text classifier in the shape of MiniLM and a
ResNet-18, after a few steps of training on made-up data.

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
WORDS, LENGTH, LARGE = 30_522, 64, 240.0  # of texts, and CPU seconds for a large net
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


def texts(samples: int, seed: int) -> dict[str, torch.Tensor]:
    """Samples of 64 words with padding, three of which tell the class; a tenth of the labels is wrong."""
    random = torch.Generator().manual_seed(seed)
    words = torch.randint(5, WORDS, (samples, LENGTH), generator=random)
    labels = torch.randint(0, 2, (samples,), generator=random)
    for word in range(3):
        place = torch.randint(0, LENGTH // 2, (samples,), generator=random)
        words[torch.arange(samples), place] = 10 + 10 * labels + word
    kept = torch.randint(LENGTH // 2, LENGTH + 1, (samples, 1), generator=random)
    mask = (torch.arange(LENGTH) < kept).long()
    wrong = torch.rand(samples, generator=random) < 0.1
    return {
        "input_ids": words * mask,
        "attention_mask": mask,
        "labels": torch.where(wrong, 1 - labels, labels),
    }


def transformer() -> Subject:
    """A BERT classifier of 22 million weights, as Hugging Face makes it, after 20 steps."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=1536, num_labels=2,
    )  # fmt: skip
    model, train = BertForSequenceClassification(config), texts(400, 1)
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for places in torch.randint(400, (20, 16)):
        optimizer.zero_grad()
        model(**{name: value[places] for name, value in train.items()}).loss.backward()
        optimizer.step()
    return Subject(model.eval(), "cross_entropy", train, texts(400, 2), initial=initial)


def images(samples: int, seed: int) -> Data:
    """Noisy images of ten kinds; three labels in ten are drawn at random."""
    random = torch.Generator().manual_seed(0)
    kinds = torch.nn.functional.interpolate(torch.randn(10, 3, 4, 4, generator=random), size=32)
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (samples,), generator=random)
    pixels = kinds[labels] + torch.randn(samples, 3, 32, 32, generator=random)
    drawn = torch.randint(0, 10, (samples,), generator=random)
    return pixels, torch.where(torch.rand(samples, generator=random) < 0.3, drawn, labels)


class Block(torch.nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(before, after, 3, stride, 1, bias=False),
            torch.nn.BatchNorm2d(after),
            torch.nn.ReLU(),
            torch.nn.Conv2d(after, after, 3, 1, 1, bias=False),
            torch.nn.BatchNorm2d(after),
        )
        self.around = torch.nn.Identity()
        if before != after:
            shorter = torch.nn.Conv2d(before, after, 1, stride, bias=False)
            self.around = torch.nn.Sequential(shorter, torch.nn.BatchNorm2d(after))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.body(inputs) + self.around(inputs)
        return found.relu()


def residual() -> Subject:
    """A ResNet-18 for images of 32 × 32 pixels, 11 million weights, after 15 steps."""
    torch.manual_seed(0)
    sizes = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    blocks = [part for a, b, stride in sizes for part in (Block(a, b, stride), Block(b, b, 1))]
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        *blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 10),
    )  # fmt: skip
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, targets = images(1000, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for places in torch.randint(1000, (15, 32)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[places]), targets[places]).backward()
        optimizer.step()
    data = (inputs, targets), images(1000, 2)
    return Subject(model.eval(), "cross_entropy", *data, initial=initial)


def whole(name: str, make: Any, seconds: float, threads: int) -> dict[str, Any]:
    """Examine with the default measures, bounds and diagnoses, as a user does."""
    subject, before = make(), _peak()
    Path("/proc/self/clear_refs").write_text("5")  # the peak of the training is not ours
    torch.set_num_threads(threads)
    report, cpu, wall = timed(lambda: examine(subject))
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
        if case == "transformer":
            name = "a BERT of 22 million weights on 400 + 400 texts of 64 words"
            return whole(name, transformer, LARGE, threads)
        if case == "residual":
            name = "a ResNet-18 of 11 million weights on 1,000 + 1,000 images of 32 × 32"
            return whole(name, residual, LARGE, threads)
        return whole("LeNet-5 on 60,000 + 10,000 digits of MNIST", digits, 90.0, threads)


CASES = ("diagnoses", "digits", "table", "transformer", "residual")


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
