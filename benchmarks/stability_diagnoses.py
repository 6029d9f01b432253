"""What the diagnoses of gradients, initialization and robustness say of nets without problems.

Nets of 17 sources are trained on seeds that no limit was set by. For every net the share of predictions is
written that changes along the gradient break and random ones of the same length do not (see not-robust), and
every finding of vanishing-gradients, exploding-gradients, bad-initialization and not-robust. With ``--images``,
convolutional nets on natural images (CIFAR-10) follow, which as a rule are not robust.

    MINDGAP_DATA=~/data python benchmarks/stability_diagnoses.py --json stability-diagnoses.json --images 5
"""

from __future__ import annotations

import argparse
import collections
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
    found, seconds, _ = timing.timed(lambda: diagnose(subject, diagnoses=NAMES))
    return {
        "test_error": subject.mean_error("test"),
        "held": int(held.sum()),
        "broken": int(broken.sum()),
        "share_broken": int(broken.sum()) / max(1, int(held.sum())),
        "findings": [[row.name, row.severity, row.p_value] for row in found.findings],
        "not_applicable": [
            row.name for row in found.checked if row.outcome not in ("found", "nothing")
        ],
        "cpu_seconds": {row.name: row.seconds for row in found.checked},
        "all_cpu_seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file, net by net")
    parser.add_argument("--seeds", type=int, default=7)
    parser.add_argument("--first", type=int, default=5000)
    parser.add_argument("--images", type=int, default=0, help="nets on natural images")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(arguments.first, arguments.first + max(arguments.seeds, arguments.images)):
        recipes = layers.recipes(seed) if seed < arguments.first + arguments.seeds else {}
        if seed < arguments.first + arguments.images:
            recipes["CIFAR-10, convolution"] = natural_images(seed)
        for name, recipe in recipes.items():
            row = told(fit(recipe, seed=seed).subject())
            rows.append({"source": name, "seed": seed, **row})
            healthy = "natural" if name.startswith("CIFAR") else "healthy"
            counts.update([healthy, *(f"{healthy}: {found[0]}" for found in row["findings"])])
            print(name, seed, f"{row['share_broken']:.3f}", row["findings"], flush=True)
            if arguments.json:
                timing.write(arguments.json, rows)
    print(dict(counts))


if __name__ == "__main__":
    main()
