"""What the diagnoses of gradients, initialization and robustness say of nets without problems.

Nets of 17 sources are trained on seeds that no limit was set by. For every source the share of predictions is
written that changes along the gradient break and random ones of the same length do not (see not-robust), and
the findings of vanishing-gradients, exploding-gradients, bad-initialization and not-robust. With ``--images``,
convolutional nets on natural images (CIFAR-10) follow, which as a rule are not robust.

    MINDGAP_DATA=~/data python benchmarks/stability_diagnoses.py --json stability-diagnoses.json --images 3
"""

from __future__ import annotations

import argparse
import collections
import statistics
from typing import Any

import layers
import timing
from torch import nn

from mindgap import data
from mindgap.core import Recipe, Subject
from mindgap.diagnoses.diagnose import diagnose
from mindgap.diagnoses.model.not_robust import SIZE, TRIED, compared, scene_near
from mindgap.ops.attacks.nearby import nearby
from mindgap.training.fit import fit

NAMES = ("vanishing-gradients", "exploding-gradients", "bad-initialization", "not-robust")


def natural_images(seed: int) -> Recipe:
    found = data.load("cifar10", size=4000, test_size=1000, seed=seed)
    model = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 64, 10),
    )  # fmt: skip
    return Recipe(model=model, train=found.train, test=found.test, epochs=5, learning_rate=3e-3)


def told(subject: Subject) -> dict[str, Any]:
    near = nearby(subject, TRIED)
    held, broken = compared(scene_near(subject, near), SIZE * near.distances)
    found = diagnose(subject, diagnoses=NAMES)
    return {
        "share": int(broken.sum()) / max(1, int(held.sum())),
        "findings": [f"{row.name} ({row.severity})" for row in found.findings],
        "silent": [row.name for row in found.checked if row.outcome not in ("found", "nothing")],
        "seconds": {row.name: row.seconds for row in found.checked},
    }


def summary(source: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    shares = [row["share"] for row in rows]
    counts = collections.Counter(name for row in rows for name in row["findings"])
    silent = collections.Counter(name for row in rows for name in row["silent"])
    return {
        "source": source,
        "networks": len(rows),
        "median_share_broken": statistics.median(shares),
        "largest_share_broken": max(shares),
        "smallest_share_broken": min(shares),
        "findings": ", ".join(f"{name} {count}" for name, count in counts.items()) or "none",
        "not_applicable": ", ".join(silent) or "none",
        **{f"cpu_seconds_of_{name}": max(row["seconds"][name] for row in rows) for name in NAMES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=5000)
    parser.add_argument("--images", type=int, default=0, help="nets on natural images")
    parser.add_argument("--only", default="", help="sources whose names hold one of these, by |")
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for k in range(max(arguments.seeds, arguments.images)):
        seed = arguments.first + k
        recipes = layers.recipes(seed) if k < arguments.seeds else {}
        if k < arguments.images:
            recipes["CIFAR-10, convolution"] = natural_images(seed)
        wanted = arguments.only.split("|")
        for name, recipe in recipes.items():
            if not any(part in name for part in wanted):
                continue
            row = told(fit(recipe, seed=seed).subject())
            found.setdefault(name, []).append(row)
            print(name, seed, f"{row['share']:.3f}", row["findings"], flush=True)
        rows = [summary(name, kept) for name, kept in found.items()]
        if arguments.json:
            timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
