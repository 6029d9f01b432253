"""The Taylor metric of 50,000 points in three dimensions against nested autograd, and against torch.func.

Both sides compute Df of order 2 in double precision on one thread, of the Bateman equations (two
outputs) and of a network 3-32-32-2 with tanh. The plain peer goes point by point: a gradient of
every output, then the rows of its Hessian by a second ``torch.autograd.grad``; it is timed on a
part of the points and scaled. The other peer is ``torch.func``: ``vmap`` over ``jacrev`` and
``hessian``, in blocks as large as ours. Times are CPU seconds. The memory is the peak above what
the process held before, each in a process of its own.

    python benchmarks/taylor.py --json taylor.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import timing
import torch
from torch import Tensor
from torch.func import hessian, jacrev, vmap

from mindgap.data.bateman import bateman
from mindgap.nets import MLP
from mindgap.ops.taylor.metric import BATCH, taylor_metric

N, PART, EPSILON = 50_000, 1_000, 5e-4
WANTED = 20.0
Function = Callable[[Tensor], Tensor]


def functions() -> dict[str, Function]:
    torch.manual_seed(0)
    return {
        "Bateman equations": bateman,
        "MLP 3-32-32-2": MLP((3, 32, 32, 2), "tanh").double().eval(),
    }


def points() -> Tensor:
    rows = torch.rand(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return rows * torch.tensor([1.0, 1.0, 10.0], dtype=torch.float64)


def own(function: Function, rows: Tensor) -> Tensor:
    return taylor_metric(function, rows, epsilon=EPSILON, order=2)


def nested_loop(function: Function, rows: Tensor) -> Tensor:
    """Point by point, output by output, row of the Hessian by row."""
    found = []
    for row in rows:
        point = row.clone().requires_grad_()
        total = 0.0
        for value in function(point[None])[0]:
            (slope,) = torch.autograd.grad(value, point, create_graph=True)
            total += EPSILON * float(slope.detach().square().sum())
            for part in slope:
                (curve,) = torch.autograd.grad(part, point, retain_graph=True)
                total += EPSILON**2 / 2 * float(curve.square().sum())
        found.append(total)
    return torch.tensor(found, dtype=torch.float64)


def torch_func(function: Function, rows: Tensor) -> Tensor:
    one = lambda point: function(point[None])[0]  # noqa: E731
    found = []
    for block in rows.split(BATCH):
        with torch.no_grad():
            slopes, curves = vmap(jacrev(one))(block), vmap(hessian(one))(block)
        first, second = slopes.square().sum((1, 2)), curves.square().sum((1, 2, 3))
        found.append(EPSILON * first + EPSILON**2 / 2 * second)
    return torch.cat(found)


SIDES = {"own": own, "loop": nested_loop, "torch.func": torch_func}


def resident() -> float:
    """Megabytes of memory in use now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 2**10


def child(side: str, name: str) -> float:
    """Peak of memory above what was there before, in megabytes."""
    torch.set_num_threads(1)
    function, rows = functions()[name], points()
    SIDES[side](function, rows[:2])  # what torch loads on its first call is not ours
    before = resident()
    SIDES[side](function, rows[:PART] if side == "loop" else rows)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - before


def memory(side: str, name: str) -> float:
    command = [sys.executable, __file__, "--child", side, name]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(json.loads(output.splitlines()[-1]))


def compared(name: str, function: Function) -> Iterator[dict[str, Any]]:
    rows = points()
    for work in SIDES.values():
        work(function, rows[:50])
    mine, *first = timing.timed(lambda: own(function, rows))
    loop, *slow = timing.timed(lambda: nested_loop(function, rows[:PART]))
    peer, *fast = timing.timed(lambda: torch_func(function, rows))
    _, *second = timing.timed(lambda: own(function, rows))
    times = [
        (a + b) / 2 for a, b in zip(first, second, strict=True)
    ]  # before and after the peers: the clock drifts
    held = {side: memory(side, name) for side in SIDES}
    for label, side, other, seconds, scale, wanted in (
        ("nested autograd, point by point", "loop", loop, slow, N / PART, WANTED),
        ("torch.func, vmap of jacrev and hessian", "torch.func", peer, fast, 1.0, 1.0),
    ):
        error = float(((mine[: len(other)] - other).abs() / other.abs()).max())
        assert error < 1e-9, f"the two sides differ by {error:.1e}"
        note = f"They agree to {error:.0e}, relative."
        note += f" The loop ran {PART} of {N} points; it is scaled." if scale > 1 else ""
        yield timing.figures(
            f"{name}: {label}", seconds, times, wanted=wanted, scale=scale, note=note,
            largest_relative_difference=error, own_peak_megabytes=held["own"], peer_peak_megabytes=held[side],
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child)))
        return
    with timing.alone():
        rows = [row for name, function in functions().items() for row in compared(name, function)]
    for row in rows:
        timing.show(row)
        print(
            f"     peak memory: ours {row['own_peak_megabytes']:.0f} MB, peer "
            f"{row['peer_peak_megabytes']:.0f} MB"
        )
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
