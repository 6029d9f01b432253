"""Choose the default limit of spectral normalization on validation data.

A fifth of the training data of three sources is set aside at random, and nets are trained on the rest with several
limits on the operator norm of every layer, from the same weights and with the same batches. Test data are not
used. The rule, set before the run: the smallest limit whose validation accuracy, averaged over seeds, is at most
one point below that of plain training on every source. Accuracy under attack (8/255 of the range) is written too;
the rule does not see it.

    python benchmarks/spectral_limit.py --json spectral-limit.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import timing
import torch

from mindgap import fit
from mindgap.core import Recipe
from mindgap.measures import RobustAccuracy
from mindgap.remedies import SpectralNormalization
from mindgap.studies.diagnoses.healthy import HEALTHY

SOURCES = ("digits, perceptron", "digits, convolution", "table, perceptron")
LIMITS = (0.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # zero is plain training
ALLOWED = 0.01


def with_validation(recipe: Recipe, seed: int) -> Recipe:
    """Replace the test data by a fifth of the training data."""
    inputs, targets = recipe.train
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    return recipe.replace(train=(inputs[kept], targets[kept]), test=(inputs[held], targets[held]))


def measured(source: str, seed: int, limit: float) -> dict[str, Any]:
    recipe = with_validation(HEALTHY[source](seed), seed)
    subject = fit(recipe, [SpectralNormalization(limit=limit)], seed=seed).subject()
    robust = float(RobustAccuracy()(subject).value)
    return {
        "source": source,
        "seed": seed,
        "limit": limit,
        "accuracy": 1 - subject.mean_error("test"),
        "under_attack": robust,
    }


def chosen(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], float | None]:
    """Return the means per source and limit, and the smallest limit that the rule allows."""
    means = [
        {
            "source": source,
            "limit": limit,
            **{key: _mean(rows, source, limit, key) for key in ("accuracy", "under_attack")},
            **_cost(rows, source, limit),
            "seeds": len({row["seed"] for row in rows}),
        }
        for source in SOURCES
        for limit in LIMITS
    ]
    known = {(row["source"], row["limit"]): row["accuracy"] for row in means}
    allowed = [
        limit
        for limit in LIMITS[1:]
        if all(known[source, limit] >= known[source, 0.0] - ALLOWED for source in SOURCES)
    ]
    return means, min(allowed, default=None)


def _cost(rows: list[dict[str, Any]], source: str, limit: float) -> dict[str, float]:
    """What the limit costs in accuracy, seed by seed, with its standard error."""
    found = {
        (row["limit"], row["seed"]): row["accuracy"] for row in rows if row["source"] == source
    }
    seeds = {row["seed"] for row in rows}
    costs = [found[0.0, seed] - found[limit, seed] for seed in seeds]
    return {
        "cost": statistics.mean(costs),
        "standard_error": statistics.stdev(costs) / len(costs) ** 0.5 if len(costs) > 1 else 0.0,
    }


def _mean(rows: list[dict[str, Any]], source: str, limit: float, key: str) -> float:
    return statistics.mean(
        row[key] for row in rows if (row["source"], row["limit"]) == (source, limit)
    )


def kept(path: str | None) -> list[dict[str, Any]]:
    """Read the trainings that were made before."""
    if path is None or not Path(path).exists():
        return []
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=6000)
    parser.add_argument("--kept", help="file of finished trainings, which are not made twice")
    parser.add_argument("--most", type=int, default=1000, help="trainings to make now")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    cases = [(source, seed, limit) for seed in seeds for source in SOURCES for limit in LIMITS]
    rows = kept(arguments.kept)
    known = {(row["source"], row["seed"], row["limit"]) for row in rows}
    for case in [case for case in cases if case not in known][: arguments.most]:
        rows.append(measured(*case))
        if arguments.kept:
            with Path(arguments.kept).open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    if len(rows) < len(cases):
        print(f"{len(rows)} of {len(cases)} trainings are done")
        return
    means, limit = chosen(rows)
    for row in means:
        print(
            f"{row['source']:20} {row['limit']:4g}  {row['accuracy']:.3f}  {row['under_attack']:.3f}"
            f"  {100 * row['cost']:.2f} ± {100 * row['standard_error']:.2f} points"
        )
    print("chosen:", limit)
    if arguments.json:
        timing.write(arguments.json, [*means, {"source": "chosen by the rule", "limit": limit}])


if __name__ == "__main__":
    main()
