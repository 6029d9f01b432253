"""Path space of a network on MNIST: how long Proposition 4 takes, part by part.

An MLP 784-256-256-10 with 2,000 training and 2,000 test samples, one thread, wanted in less than 60
seconds of CPU time: 785 · 256 · 256 paths and more to each output, none of which is listed. The
network is trained for a few epochs and that is not timed.

    python benchmarks/paths.py --json paths.json
"""

from __future__ import annotations

import argparse
import math
import resource
from typing import Any

import timing
import torch

from mindgap import Recipe, fit
from mindgap.data import mnist
from mindgap.nets import MLP
from mindgap.ops.paths.concentrated import compared_moments, divisions, proposition_4
from mindgap.ops.paths.gram import gram
from mindgap.ops.paths.largest import largest_over_paths
from mindgap.ops.paths.norms import log_path_norms
from mindgap.ops.paths.spectrum import largest_eigenvalues
from mindgap.ops.paths.subject import Sides, sides_of

LIMIT = 60.0


def sides(samples: int) -> Sides:
    """A trained network with as many training as test samples."""
    data = mnist(samples, samples)
    recipe = Recipe(
        model=lambda: MLP((784, 256, 256, 10)),
        train=data.train,
        test=data.test,
        epochs=5,
        batch_size=64,
        learning_rate=1e-3,
    )
    return sides_of(fit(recipe, seed=0, evaluate_every=0).subject(), samples, 0)


def row(name: str, cpu: float, wall: float, **facts: Any) -> dict[str, Any]:
    """The CPU time counts, because other programs may share the machine."""
    verdict = "ok  " if cpu <= LIMIT else "MISS"
    print(f"{verdict} {name}: {cpu:.2f} s CPU, {wall:.2f} s wall. {facts}", flush=True)
    return {
        "name": name,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "wanted_at_most": LIMIT,
        **facts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--samples", type=int, default=2000, help="samples of each kind (2000)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    both, rows = sides(arguments.samples), []
    with timing.alone():
        paths, cpu, wall = timing.timed(lambda: float(log_path_norms(both.chain, 0)[0]))
        rows.append(row("number of paths to an output", cpu, wall, paths=math.exp(paths)))
        norms, cpu, wall = timing.timed(lambda: log_path_norms(both.chain, 2))
        rows.append(row("path norms", cpu, wall, squared=float(norms.exp().sum())))
        products, cpu, wall = timing.timed(lambda: gram(both.chain, both.inputs))
        rows.append(row("inner products", cpu, wall, samples=len(both.inputs)))
        own = both.weights[:, None]
        largest, cpu, wall = timing.timed(lambda: largest_eigenvalues(products.matrix, own, paths))
        value = float(largest) * math.exp(products.log_scale)
        rows.append(row("largest eigenvalue", cpu, wall, beta_1=value))
        null = divisions(both, 99, 0)
        compared, cpu, wall = timing.timed(lambda: compared_moments(both, null))
        rows.append(row("99 permutations of it", cpu, wall, p_value=compared.p_value))
        found, cpu, wall = timing.timed(
            lambda: largest_over_paths(both.chain, both.inputs, both.targets * own)
        )
        assert found.exact
        rows.append(row("largest over all paths", cpu, wall, beta_2=float(found.values.max())))
        whole, cpu, wall = timing.timed(lambda: proposition_4(both))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        facts = {"gap": whole.gap, "limit": whole.limit, "peak_gigabytes": peak}
        rows.append(row("Proposition 4 as a whole", cpu, wall, **facts))
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
