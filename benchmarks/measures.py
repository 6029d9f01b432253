"""What all default measures and bounds cost: LeNet-5 on full MNIST, ResNet-20 on full CIFAR-10.

The first pass over the data, which all measures share, is timed first, then every measure by
itself, in the order in which ``examine`` takes them. Their sum counts. Times are CPU seconds with
one thread, and wall seconds next to them; the load of the machine is recorded, because a busy one
makes both longer. Two threads share the work, but they wait for each other by spinning, which
counts as CPU time: on a busy machine it doubled. Diagnoses are timed too. The nets are trained
first; their checkpoints stay in the folder of ``--keep``, so that a second run need not train.

    MINDGAP_DATA=~/data python benchmarks/measures.py --keep /tmp/nets --json measures.json
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timing
from torch import nn

from mindgap import examine
from mindgap.core import Recipe
from mindgap.data import load
from mindgap.nets import LeNet5, ResNet20
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted

THREADS = 1


@dataclasses.dataclass(frozen=True)
class Case:
    """A net with its data, and how many minutes its measures may take."""

    name: str
    model: Callable[[], nn.Module]
    data: str
    epochs: int
    minutes: float


CASES = (
    Case("LeNet-5", LeNet5, "mnist", 2, 3),
    Case("ResNet-20", ResNet20, "cifar10", 1, 15),
)


def trained(case: Case, keep: Path) -> Fitted:
    data = load(case.data)
    recipe = Recipe(
        model=case.model,
        train=data.train,
        test=data.test,
        epochs=case.epochs,
        batch_size=128,
        learning_rate=0.002,
        classes=data.classes,
    )
    return fit(recipe, evaluate_every=0, checkpoint=keep / f"{case.name}.pt")


def measured(case: Case, keep: Path) -> dict[str, Any]:
    fitted = trained(case, keep)
    subject = fitted.subject()
    _, *passes = timing.timed(lambda: (subject.losses("train"), subject.losses("test")))
    report, *whole = timing.timed(lambda: examine(subject))
    results = [card.result for card in report.cards]
    cost = {result.name: result.cost.get("cpu_seconds", 0.0) for result in results}
    slowest = sorted(cost.items(), key=lambda pair: -pair[1])
    checks = {
        row.name: round(row.seconds, 3)
        for row in sorted(report.checked, key=lambda row: -row.seconds)
    }
    spent = sum(cost.values()), sum(result.cost.get("seconds", 0.0) for result in results)
    own = tuple(first + rest for first, rest in zip(passes, spent, strict=True))
    return timing.figures(
        f"{case.name} on {case.data}: all default measures and bounds against {case.minutes:g} minutes",
        (60.0 * case.minutes,) * 2, own, wanted=1,
        note=f"{len(results)} numbers; the slowest is {slowest[0][0]}.",
        threads=THREADS,
        test_error=report.facts.test_error,
        undefined={r.name: r.reason for r in results if r.status == "undefined"},
        cpu_seconds_of_the_first_pass=passes[0],
        cpu_seconds_by_measure={name: round(seconds, 3) for name, seconds in slowest},
        with_diagnoses={
            "cpu_seconds": passes[0] + whole[0],
            "wall_seconds": passes[1] + whole[1],
        },
        cpu_seconds_by_diagnosis=checks,
        load_average=os.getloadavg()[1],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    folder = Path(tempfile.gettempdir()) / "mindgap-nets"
    parser.add_argument("--keep", type=Path, default=folder, help="folder of the trained nets")
    parser.add_argument("--only", choices=[case.name for case in CASES], help="time one net")
    arguments = parser.parse_args()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if arguments.only in (None, case.name)]
    rows: list[dict[str, Any]] = []
    with timing.alone(THREADS):
        for case in cases:
            rows.append(measured(case, arguments.keep))
            timing.show(rows[-1])
            for name, seconds in list(rows[-1]["cpu_seconds_by_measure"].items())[:12]:
                print(f"     {name:32} {seconds:7.2f} s")
            slowest = list(rows[-1]["cpu_seconds_by_diagnosis"].items())[:12]
            print("   with diagnoses", rows[-1]["with_diagnoses"], slowest)
            if arguments.json:
                timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
