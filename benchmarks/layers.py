"""Statistics of the diagnoses of layers on nets without problems, and on their plants.

Thresholds of idle-layer and rank-collapse should lie far below all of these nets. They were set with nets of seeds
3000 to 3006 in view, so the saved figures are those of fresh seeds. Sharpness of some of them is recorded as well: see
docs/decisions/0041-too-sharp-has-no-threshold.md.

    MINDGAP_DATA=~/data python benchmarks/layers.py --json layer-diagnoses.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timing
from torch import Tensor, nn

from mindgap.core import Recipe, Subject
from mindgap.diagnoses.model.idle_layer import IdleLayer, layer_changes
from mindgap.diagnoses.model.rank_collapse import RankCollapse, layer_directions
from mindgap.measures.curvature.adaptive_sharpness import AdaptiveSharpness
from mindgap.measures.curvature.average_sharpness import AverageSharpness
from mindgap.studies.diagnoses.healthy import HEALTHY, digits_perceptron, healthy_recipe
from mindgap.training.fit import fit


class Block(nn.Module):
    """A residual block of two dense layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.inner(inputs)


def deep(layer: Callable[[int], list[nn.Module]], depth: int = 5) -> Callable[[], nn.Module]:
    parts = lambda: [part for _ in range(depth) for part in layer(64)]  # noqa: E731
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64), *parts(), nn.Linear(64, 10))


MORE: dict[str, Callable[[], nn.Module]] = {
    "digits, five layers with ReLU": deep(lambda n: [nn.Linear(n, n), nn.ReLU()]),
    "digits, five layers with tanh": deep(lambda n: [nn.Linear(n, n), nn.Tanh()]),
    "digits, five layers with BatchNorm": deep(
        lambda n: [nn.Linear(n, n), nn.BatchNorm1d(n), nn.ReLU()]
    ),
    "digits, five layers with LayerNorm and GELU": deep(
        lambda n: [nn.Linear(n, n), nn.LayerNorm(n), nn.GELU()]
    ),
    "digits, five residual blocks": deep(lambda n: [Block(n)]),
    "digits, residual blocks behind LayerNorm": deep(lambda n: [Block(n), nn.LayerNorm(n)]),
}


def recipes(seed: int) -> dict[str, Recipe]:
    found = {name: make(seed) for name, make in HEALTHY.items()}
    plain = digits_perceptron(seed)
    return found | {name: plain.replace(model=model) for name, model in MORE.items()}


def told(subject: Subject, sharp: bool) -> dict[str, Any]:
    changes, needed = layer_changes(subject), 0
    row: dict[str, Any] = {"least_change": min(changes.values(), default=None)}
    if subject.task == "classification":
        needed = subject.outputs("train").shape[1] - 1
        counts = layer_directions(subject)
        if needed >= 4 and counts:
            row["least_directions_over_needed"] = min(counts.values()) / needed
    if sharp:
        row["adaptive_sharpness"] = AdaptiveSharpness(samples=200)(subject).value
        row["average_sharpness"] = AverageSharpness(samples=200)(subject).value
        row["gap"] = subject.mean_error("test") - subject.mean_error("train")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json", default="layer-diagnoses.json", help="write the figures to this file, net by net"
    )
    parser.add_argument("--seeds", type=int, default=7, help="nets per source")
    parser.add_argument("--first", type=int, default=4000, help="the first seed")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for name, recipe in recipes(seed).items():
            subject = fit(recipe, seed=seed, evaluate_every=0).subject()
            sharp = seed < arguments.first + 2
            found = [cls.name for cls in (IdleLayer, RankCollapse) if cls()(subject) is not None]
            rows.append(
                {"source": name, "seed": seed, "accused": found, **told(subject, sharp=sharp)}
            )
            timing.write(arguments.json, rows)
    for cls in (IdleLayer, RankCollapse):
        for kind in cls.kinds:
            for seed in range(arguments.first + 100, arguments.first + 105):
                planted = cls.plant(healthy_recipe(kind, seed=seed), seed=seed)
                found = cls()(planted)
                severity = None if found is None else found.severity
                rows.append(
                    {"source": f"plant of {cls.name}, {kind}", "seed": seed, "found": severity}
                    | told(planted, sharp=False)
                )
                timing.write(arguments.json, rows)
    print(json.dumps(json.loads(Path(arguments.json).read_text())["rows"][-1]))


if __name__ == "__main__":
    main()
