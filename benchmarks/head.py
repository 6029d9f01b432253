"""Deep VBSW on MNIST: how long the job takes after the base model is trained.

LeNet-5, one thread. On 60,000 digits: features, weights and the exact head of one setting (m = 40,
k = 20), wanted in less than 60 seconds, and the search over 50 settings on held-out training data,
in less than ten minutes. On 10,000 digits: all of ``mindgap choose-head``, in less than 60 seconds.
The base model is trained for one epoch and is not timed.

    python benchmarks/head.py --json head.json
"""

from __future__ import annotations

import argparse
from typing import Any

import timing
import torch

from mindgap import Recipe, Subject, choose_head, fit, retrain_head
from mindgap.data import mnist
from mindgap.jobs.head.search import search_head
from mindgap.nets import LeNet5


def row(name: str, cpu: float, wall: float, limit: float, **facts: Any) -> dict[str, Any]:
    """The CPU time counts, which other programs on the machine do not change."""
    verdict = "ok  " if cpu <= limit else "MISS"
    print(
        f"{verdict} {name}: {wall:.1f} s wall, {cpu:.1f} s CPU (at most {limit:g} s wanted). "
        f"{facts}",
        flush=True,
    )
    return {
        "name": name,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "wanted_at_most": limit,
        **facts,
    }


def trained(size: int | None) -> Subject:
    """LeNet-5 after an epoch on so many digits."""
    data = mnist(size=size)
    recipe = Recipe(
        model=LeNet5,
        train=data.train,
        test=data.test,
        loss="cross_entropy",
        optimizer="adam",
        epochs=1,
        batch_size=64,
    )
    return fit(recipe, seed=0, evaluate_every=0).subject()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    subject, small = trained(None), trained(10_000)
    with timing.alone():
        found, cpu, wall = timing.timed(lambda: retrain_head(subject, k=20, max_weight=40))
        assert found.converged
        rows = [
            row(
                "features, weights and exact head of one setting",
                cpu,
                wall,
                60,
                gradient_norm=found.gradient_norm,
            )
        ]
        search, cpu, wall = timing.timed(lambda: search_head(subject))
        assert len(search.settings) == 50
        converged = int(search.converged.sum())
        rows.append(
            row("50 settings on held-out training data", cpu, wall, 600, converged=converged)
        )
        choice, cpu, wall = timing.timed(lambda: choose_head(small))
        assert len(choice.errors) == 4
        rows.append(
            row(
                "choose-head at its default grid on 10,000 samples",
                cpu,
                wall,
                60,
                settings=len(choice.search.settings),
                converged=int(choice.search.converged.sum()),
            )
        )
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
