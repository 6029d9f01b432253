"""Eigenvalues, trace and Gauss–Newton diagonal of LeNet-5, against PyHessian and BackPACK.

LeNet-5 is trained for one epoch on MNIST; the loss is that of 2,000 images. The peers run in an
interpreter of their own, whose packages need not fit ours:

    python -m venv peers && peers/bin/pip install torch pyhessian backpack-for-pytorch
    python benchmarks/curvature.py --peers peers/bin/python --json curvature.json

PyHessian computes its five eigenvalues with its default tolerance, in the faster of its two modes,
and its trace from 100 random vectors. We must be at least as exact: eigenvalues against a search to
1e-6, the trace against the sum of the exact diagonal. Errors of both are printed. Sides take turns,
and the medians of CPU seconds are compared. One thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SAMPLES, CHUNK = 2_000, 250
CASES = ("eigenvalues", "trace", "diagonal")
NAMES = {"backpack-for-pytorch": "backpack", "pyhessian": "pyhessian", "torch": "torch"}


def clocked(work: Callable[[], Any]) -> tuple[Any, list[float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    value = work()
    return value, [time.process_time() - cpu, time.perf_counter() - wall]


def lenet() -> nn.Sequential:
    """The same layers as mindgap.nets.LeNet5, for the peers."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def peer_side(folder: Path, job: str) -> dict[str, Any]:
    """Run one job of a peer; called in the peers' interpreter, without mindgap."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    saved = torch.load(folder / "problem.pt", weights_only=True)
    model = lenet()
    model.load_state_dict(saved["weights"])
    jobs = {"eigenvalues": _power, "loader": _power, "trace": _hutchinson, "diagonal": _backpack}
    value, seconds = jobs[job](model, saved["inputs"], saved["targets"], job == "loader")
    if isinstance(value, Tensor):
        torch.save(value, folder / "diagonal.pt")
    return {
        "seconds": seconds,
        "value": None if isinstance(value, Tensor) else value,
        "versions": {name: metadata.version(name) for name in NAMES if _is_used(name)},
    }


def _is_used(name: str) -> bool:
    """Tell whether a package of the peers was imported in this process."""
    return NAMES[name] in sys.modules


def _pyhessian(model: nn.Module, x: Tensor, y: Tensor, loader: bool) -> Any:
    from pyhessian import hessian

    given: Any = {"data": (x, y)}
    if loader:
        given = {"dataloader": list(zip(x.split(CHUNK), y.split(CHUNK), strict=True))}
    return hessian(model, nn.CrossEntropyLoss(), cuda=False, **given)


def _power(model: nn.Module, x: Tensor, y: Tensor, loader: bool) -> tuple[Any, list[float]]:
    return clocked(lambda: _pyhessian(model, x, y, loader).eigenvalues(top_n=5)[0])


def _hutchinson(model: nn.Module, x: Tensor, y: Tensor, _: bool) -> tuple[Any, list[float]]:
    return clocked(lambda: _pyhessian(model, x, y, False).trace(maxIter=100, tol=0.0))


def _backpack(model: nn.Module, x: Tensor, y: Tensor, _: bool) -> tuple[Any, list[float]]:
    from backpack import backpack, extend
    from backpack.extensions import DiagGGNExact

    extended, loss = extend(model), extend(nn.CrossEntropyLoss(reduction="sum"))

    def run(size: int) -> Tensor:
        total = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
        for inputs, targets in zip(x.split(size), y.split(size), strict=True):
            extended.zero_grad()
            with backpack(DiagGGNExact()):
                loss(extended(inputs), targets).backward()
            total += torch.cat([p.diag_ggn_exact.flatten() for p in model.parameters()]).double()
        return total / len(x)

    # The size of its chunks is the user's choice: the fastest of four.
    found = [clocked(lambda size=size: run(size)) for size in (25, 50, 100, 250)]
    return min(found, key=lambda one: one[1][0])


def problem(folder: Path) -> Any:
    """LeNet-5 after one epoch on MNIST, and the subject of the first 2,000 images."""
    from mindgap.core import Recipe, Subject
    from mindgap.data.mnist import mnist
    from mindgap.nets import LeNet5
    from mindgap.training.fit import fit

    train = mnist().train
    recipe = Recipe(model=LeNet5, train=train, epochs=1, batch_size=64)
    model = fit(recipe, evaluate_every=0).model
    x, y = train[0][:SAMPLES], train[1][:SAMPLES]
    weights = dict(zip(lenet().state_dict(), model.state_dict().values(), strict=True))
    torch.save({"weights": weights, "inputs": x, "targets": y}, folder / "problem.pt")
    return Subject(model, "cross_entropy", (x, y))


class Benchmark:
    def __init__(self, python: str, folder: Path, rounds: int) -> None:
        self.python, self.folder, self.rounds = python, folder, rounds
        self.subject = problem(folder)
        self.versions = dict[str, str]()

    def peer(self, job: str) -> dict[str, Any]:
        words = [self.python, __file__, "--job", job, "--folder", str(self.folder)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        self.versions |= found["versions"]
        return found

    def turns(
        self, own: Callable[[], Any], *jobs: str
    ) -> tuple[Any, Any, list[float], list[float]]:
        """Values and median seconds of our side and of the fastest of the peer's jobs."""
        values, times, rivals = [], [], {job: [] for job in jobs}
        for _ in range(self.rounds):
            value, seconds = clocked(own)
            values.append(value)
            times.append(seconds)
            for job in jobs:
                rivals[job].append(self.peer(job))
        best = min(jobs, key=lambda job: middle([run["seconds"] for run in rivals[job]])[0])
        peer_times = middle([run["seconds"] for run in rivals[best]])
        return values[0], rivals[best][0]["value"], middle(times), peer_times

    def eigenvalues(self) -> dict[str, Any]:
        import timing

        from mindgap.ops.curvature.flat_loss import FlatLoss
        from mindgap.ops.curvature.products import hessian_products
        from mindgap.ops.curvature.spectrum import top_eigenpairs

        truth = top_eigenpairs(hessian_products(FlatLoss(self.subject)), 5, tolerance=1e-6).values

        def own() -> Any:
            return top_eigenpairs(hessian_products(FlatLoss(self.subject)), 5)

        found, peer, ours, theirs = self.turns(own, "eigenvalues", "loader")
        errors = [
            float(((torch.tensor(v) - truth).abs() / truth).max())
            for v in (found.values.tolist(), peer)
        ]
        assert errors[0] <= max(errors[1], 1e-3), errors
        return timing.figures(
            "Five largest eigenvalues of the Hessian, against PyHessian", theirs, ours, wanted=2,
            note=f"Largest relative error {errors[0]:.1e} to {errors[1]:.1e}; {found.products} products.",
            own_error=errors[0], peer_error=errors[1], eigenvalues=truth.tolist(),
            own_products=found.products,
        )  # fmt: skip

    def trace(self) -> dict[str, Any]:
        import timing

        from mindgap.ops.curvature.flat_loss import FlatLoss
        from mindgap.ops.curvature.hessian_diagonal import hessian_diagonal
        from mindgap.ops.curvature.products import hessian_products
        from mindgap.ops.curvature.spectrum import trace

        flat = FlatLoss(self.subject)
        truth = float(hessian_diagonal(flat, flat.point).sum())  # exact, because of ReLU

        def own() -> Any:
            return trace(hessian_products(FlatLoss(self.subject)), 45)

        found, draws, ours, theirs = self.turns(own, "trace")
        error = statistics.stdev(draws) / len(draws) ** 0.5
        assert found.standard_error <= error, (found.standard_error, error)
        return timing.figures(
            "Trace of the Hessian, against PyHessian", theirs, ours, wanted=2,
            note=f"Standard error {found.standard_error:.3g} to {error:.3g} of a trace of {truth:.4g}.",
            own_standard_error=found.standard_error, peer_standard_error=error, trace=truth,
            own_value=found.value, peer_value=statistics.mean(draws),
        )  # fmt: skip

    def diagonal(self) -> dict[str, Any]:
        import timing

        from mindgap.ops.curvature.flat_loss import FlatLoss
        from mindgap.ops.curvature.hessian_diagonal import hessian_diagonal

        flat = FlatLoss(self.subject)
        found, _, ours, theirs = self.turns(lambda: hessian_diagonal(flat, flat.point), "diagonal")
        peer = torch.load(self.folder / "diagonal.pt", weights_only=True)
        error = float((found - peer).abs().max() / found.max())
        assert error < 1e-4, error
        return timing.figures(
            "Exact diagonal of the Gauss–Newton matrix, against BackPACK", theirs, ours, wanted=1,
            note=f"Entries agree to {error:.0e} of the largest.", difference=error,
        )  # fmt: skip


def middle(times: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*times, strict=True)]


def has_peers(python: str) -> bool:
    words = [python, "-c", "import pyhessian, backpack"]
    return not subprocess.run(words, capture_output=True, check=False).returncode


def others(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of cases that a file has and this run did not measure again."""
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    return [row for row in known if row["name"] not in {own["name"] for own in rows}]


def before(path: Path) -> dict[str, str]:
    """The versions of the peers whose rows a file keeps."""
    known = json.loads(path.read_text()) if path.exists() else {}
    found: dict[str, str] = known.get("environment", {}).get("peers", {})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--peers", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", choices=CASES, help="run this case only")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(peer_side(arguments.folder, arguments.job)))
        return
    if not has_peers(arguments.peers):
        print("Skipped: PyHessian and BackPACK must be installed; pass --peers, as the head says.")
        return
    import timing

    rows = []
    with timing.alone(), tempfile.TemporaryDirectory() as folder:
        benchmark = Benchmark(arguments.peers, Path(folder), arguments.rounds)
        for case in arguments.case or CASES:
            rows.append(getattr(benchmark, case)())
            timing.show(rows[-1])
    if arguments.json:
        versions = {**before(Path(arguments.json)), **benchmark.versions}
        versions["torch of the peers"] = versions.pop("torch")
        timing.write(arguments.json, [*others(Path(arguments.json), rows), *rows], versions)


if __name__ == "__main__":
    main()
