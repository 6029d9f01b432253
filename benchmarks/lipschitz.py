"""Certified upper bounds of Lipschitz constants next to the slopes that a search finds.

LeNet-5 with average pooling and an MLP 784-256-256-10 are trained on 6,000 images of MNIST, and
LeNet-5 again on 4,000. "Ratio" is the certified upper bound over the found lower bound; CPU seconds
are those of the upper bound alone, reading the network included, on one thread. "Below brute force"
counts random small ReLU nets whose bound is below the largest slope at sampled points; it must be
zero.

"Patterns" is the largest norm of the product of the layers with any units off, whether an input does
that or not, as far as exchanging units finds. No bound that knows of a ReLU only that its slope is
between 0 and 1 can be below it.

    python benchmarks/lipschitz.py --json lipschitz.json
    python benchmarks/lipschitz.py --json lipschitz.json --only LeNet   # the other rows are kept

The optima of the semidefinite program come from cvxpy in an environment of its own, and need neither
torch nor mindgap:

    pip install cvxpy==1.9.3 && python benchmarks/lipschitz.py --sdp
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

RANDOM = "random nets below brute force"
SLOPES = ((0.0, 1.0), (0.1, 1.0), (-0.1, 1.1))


def semidefinite(seed: int) -> dict[str, Any]:
    """LipSDP-Neuron on a random net, solved by Clarabel."""
    import cvxpy as cp
    import numpy as np

    random = np.random.default_rng(seed)
    widths = [int(random.integers(3, 7)) for _ in range(3 + seed % 2)] + [
        int(random.integers(1, 5))
    ]
    weights = [random.standard_normal((b, a)) / np.sqrt(a) * 1.5 for a, b in pairwise(widths)]
    low, high = SLOPES[seed % 3]
    sizes = widths[:-1]
    ends = np.concatenate([[0], np.cumsum(sizes)])

    def part(place: int) -> Any:
        rows = np.zeros((sizes[place], ends[-1]))
        rows[:, ends[place] : ends[place + 1]] = np.eye(sizes[place])
        return rows

    rho = cp.Variable(nonneg=True)
    last = weights[-1] @ part(len(sizes) - 1)
    matrix = rho * (part(0).T @ part(0)) - last.T @ last
    for place in range(1, len(sizes)):
        before, after = weights[place - 1] @ part(place - 1), part(place)
        weight = cp.diag(cp.Variable(sizes[place], nonneg=True))
        crossed = before.T @ weight @ after
        matrix = matrix - (low + high) * (crossed + crossed.T)
        matrix = matrix + 2 * low * high * before.T @ weight @ before + 2 * after.T @ weight @ after
    problem = cp.Problem(cp.Minimize(rho), [(matrix + matrix.T) / 2 >> 0])
    problem.solve(solver=cp.CLARABEL)
    return {"seed": seed, "widths": widths, "optimum": float(rho.value) ** 0.5}


def trained(model: Any, x: Any, y: Any) -> Any:
    import torch

    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    order = torch.Generator().manual_seed(0)
    for _ in range(4):
        for rows in torch.randperm(len(x), generator=order).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def patterns(levels: Any, restarts: int = 3, rounds: int = 120) -> float:
    """Exchange units layer by layer while the norm of the product grows."""
    import torch

    weights = [level.affine.matrix for level in levels.levels] + [levels.last.matrix]
    random, best = torch.Generator().manual_seed(0), 0.0
    for _ in range(restarts):
        on = [(torch.rand(len(w), generator=random) < 0.8).double() for w in weights[:-1]]
        way = torch.randn(weights[0].shape[1], generator=random).double()
        for turn in range(rounds):
            # Forward: what enters each layer of units. Backward: what the output makes of it.
            forward = [weights[0] @ (way / way.norm())]
            for own, weight in zip(on, weights[1:], strict=True):
                forward.append(weight @ (own * forward[-1]))
            best = max(best, float(forward[-1].norm()))
            back = forward[-1] / forward[-1].norm()
            for k in range(len(on) - 1, -1, -1):
                back = weights[k + 1].T @ back
                if k == turn % len(on):
                    on[k] = (back * forward[k] > 0).double()
                back = on[k] * back
            way = weights[0].T @ back
    return best


def compared(
    name: str, model: Any, data: Any, images: int, wanted: float, steps: int
) -> dict[str, Any]:
    import timing
    import torch

    from mindgap.ops.lipschitz.levels import read_levels
    from mindgap.ops.lipschitz.lower import lipschitz_lower
    from mindgap.ops.lipschitz.tight import tight_upper
    from mindgap.ops.norms.composed import lipschitz_upper

    x, y = data.train[0][:images].float(), data.train[1][:images].long()
    model = trained(model, x, y)
    with torch.no_grad():
        right = model(data.test[0].float()).argmax(1) == data.test[1]
    lower, searching, _ = timing.timed(lambda: lipschitz_lower(model, x[:1000]))
    upper, cpu, _ = timing.timed(lambda: tight_upper(read_levels(model, x[0]), steps=steps))
    product = lipschitz_upper(model, x[:1]).upper
    row = {
        "name": name,
        "ratio": upper.upper / lower.lower,
        "wanted_ratio": wanted,
        "product_ratio": product / lower.lower,
        "closed_form_ratio": upper.start / lower.lower,
        "patterns_ratio": patterns(read_levels(model, x[0])) / lower.lower,
        "lower": lower.lower,
        "lower_at_data": lower.data,
        "upper": upper.upper,
        "steps": steps,
        "cpu_seconds": cpu,
        "lower_cpu_seconds": searching,
        "training_images": images,
        "test_accuracy": float(right.double().mean()),
    }
    print(json.dumps(row), flush=True)
    return row


def brute_force(cases: int) -> dict[str, Any]:
    """Random ReLU nets with two to four layers of one to four units; 200 points each."""
    import torch

    from mindgap.ops.lipschitz.affine import Affine
    from mindgap.ops.lipschitz.levels import Level, Levels
    from mindgap.ops.lipschitz.tight import tight_upper

    random = torch.Generator().manual_seed(0)
    below, ratios = 0, list[float]()
    for _ in range(cases):
        depth = int(torch.randint(2, 5, (1,), generator=random))
        widths = torch.randint(1, 5, (depth + 1,), generator=random).tolist()
        weights = [
            torch.randn(b, a, generator=random, dtype=torch.double) for a, b in pairwise(widths)
        ]
        maps = [Affine(lambda rows, w=w: rows @ w.T, w.shape[1]) for w in weights]
        levels = [
            Level(one, (), torch.zeros(len(one.bias)).double(), torch.ones(len(one.bias)).double(),
                  torch.arange(len(one.bias)))
            for one in maps[:-1]
        ]  # fmt: skip
        upper = tight_upper(Levels(tuple(levels), maps[-1]), steps=4).upper
        points = torch.randn(200, widths[0], generator=random, dtype=torch.double)
        jacobian, units = weights[0].expand(200, -1, -1), points @ weights[0].T
        for weight in weights[1:]:
            on = (units > 0).double()
            jacobian, units = weight @ (on[:, :, None] * jacobian), (units * on) @ weight.T
        largest = float(torch.linalg.matrix_norm(jacobian, 2).max())
        below += upper < largest
        ratios.append(upper / max(largest, 1e-300))
    row = {"name": RANDOM, "cases": cases, "below": below,
           "smallest_ratio": min(ratios)}  # fmt: skip
    print(json.dumps(row), flush=True)
    return row


def measure(path: str | None, cases: int, only: str) -> None:
    import timing
    import torch
    from torch import nn

    from mindgap import data
    from mindgap.nets import LeNet5

    found = data.load("mnist")
    dense = (784, 256, 256, 10)

    def mlp() -> Any:
        layers = [each for a, b in pairwise(dense) for each in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *layers[:-1])

    def lenet() -> Any:
        return LeNet5(pool="average")

    # Steps that leave LeNet-5 well within a minute, also on a busy machine.
    nets = [
        ("MLP 784-256-256-10", mlp, 6000, 1.02, 60),
        ("LeNet-5, average pooling, 6,000 images", lenet, 6000, 1.35, 36),
        ("LeNet-5, average pooling, 4,000 images", lenet, 4000, 1.35, 36),
    ]
    rows = kept(path, only)
    with timing.alone():
        if only in RANDOM:
            rows[RANDOM] = brute_force(cases)
        for name, make, images, wanted, steps in nets:
            if only in name:
                torch.manual_seed(0)
                rows[name] = compared(name, make(), found, images, wanted, steps)
    if path:
        timing.write(path, list(rows.values()))


def kept(path: str | None, only: str) -> dict[str, Any]:
    """Return the rows of an earlier run that are not measured again, in their order."""
    if not path or not only or not Path(path).exists():
        return {}
    return {row["name"]: row for row in json.loads(Path(path).read_text())["rows"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", metavar="PATH", help="write the figures here")
    parser.add_argument("--cases", type=int, default=10_000, help="random nets (10000)")
    parser.add_argument("--only", default="", help="measure rows with this in their name only")
    parser.add_argument("--sdp", action="store_true", help="print the semidefinite optima instead")
    arguments = parser.parse_args()
    if arguments.sdp:
        for seed in range(20):
            print(json.dumps(semidefinite(seed)), flush=True)
    else:
        measure(arguments.json, arguments.cases, arguments.only)


if __name__ == "__main__":
    main()
