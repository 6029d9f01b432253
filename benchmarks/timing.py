"""Measure CPU time of two sides of a comparison, one benchmark at a time, and write the figures down."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")
PEERS = (
    "adversarial-robustness-toolbox", "backpack-for-pytorch", "cvxpy", "faiss-cpu", "foolbox",
    "loss-landscapes", "numpy", "pyhessian", "scikit-learn", "scipy", "torchattacks",
)  # fmt: skip


def peers_here(names: Sequence[str] = PEERS) -> dict[str, str]:
    """The versions of the distributions whose modules are imported, of those with these names."""
    known = metadata.packages_distributions()
    found = {name.lower() for module in list(sys.modules) for name in known.get(module, ())}
    return {name: metadata.version(name) for name in names if name in found}


@contextlib.contextmanager
def alone(threads: int = 1) -> Iterator[None]:
    """Wait until no other benchmark runs on this machine; use ``threads`` threads of torch meanwhile."""
    import fcntl

    before = torch.get_num_threads()
    with (Path(tempfile.gettempdir()) / "mindgap-benchmark.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        torch.set_num_threads(threads)
        # glibc returns memory to the system after each step or keeps it, by how the heap happens to
        # lie: page faults made one of two equal sides up to 1.6 times as slow. After a block of
        # nearly 32 MB was freed it keeps all below.
        torch.ones(8_000_000)
        try:
            yield
        finally:
            torch.set_num_threads(before)
            fcntl.flock(file, fcntl.LOCK_UN)


def timed(work: Callable[[], Value]) -> tuple[Value, float, float]:
    """The result, the CPU seconds and the wall seconds of some work."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = work()
    return value, time.process_time() - cpu, time.perf_counter() - wall


def figures(
    name: str,
    peer: Sequence[float],
    own: Sequence[float],
    *,
    wanted: float,
    scale: float = 1.0,
    note: str = "",
    **more: Any,
) -> dict[str, Any]:
    """One row: (CPU, wall) seconds of both sides and their ratio; ``scale`` multiplies a peer that ran a part only."""
    cpu, wall = scale * peer[0], scale * peer[1]
    return {
        "name": name,
        "cpu_ratio": cpu / own[0],
        "wall_ratio": wall / own[1],
        "wanted_ratio": wanted,
        "peer_cpu_seconds": cpu,
        "own_cpu_seconds": own[0],
        "peer_wall_seconds": wall,
        "own_wall_seconds": own[1],
        "peer_scaled_by": scale,
        "note": note,
        **more,
    }


def show(row: Mapping[str, Any]) -> None:
    """Print one row."""
    verdict = "ok  " if row["cpu_ratio"] >= row["wanted_ratio"] else "SLOW"
    print(
        f"{verdict} {row['name']}: {row['cpu_ratio']:.1f}x CPU, {row['wall_ratio']:.1f}x wall "
        f"(wanted {row['wanted_ratio']:g}x; {row['peer_cpu_seconds']:.2f} s to "
        f"{row['own_cpu_seconds']:.3f} s CPU). "
        f"{row['note']}",
        flush=True,
    )


def write(
    path: str | Path, rows: Sequence[Mapping[str, Any]], peers: Mapping[str, str] | None = None
) -> None:
    """Write all rows, with the versions and the machine, as JSON.

    Args:
        path: The file.
        rows: One per comparison.
        peers: Versions of peers that ran in an interpreter of their own.
    """
    machine = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "peers": {**peers_here(), **(peers or {})},
    }
    Path(path).write_text(json.dumps({"environment": machine, "rows": list(rows)}, indent=2) + "\n")
