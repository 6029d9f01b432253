"""Local variance of 50,000 real features against the authors' loop, scikit-learn's brute force and FAISS Flat.

All sides work on the same 50,000 x 64 single-precision features with k = 20 and one thread: the
penultimate layer of a ResNet-20 trained on CIFAR-10 for three epochs, which has these sizes by
itself; that of a LeNet-5 made 64 wide and trained on MNIST for one epoch; and the principal
components of MNIST's pixels. Times are CPU seconds. Ours is the time of the whole job, from
features to variances, checked distances and ties included; scikit-learn and FAISS only find the
neighbors. The authors' loop queries a KD-tree sample by sample; it is timed on a part and scaled.

    python benchmarks/neighbors.py --json neighbors.json
    python benchmarks/neighbors.py --exact   # the same sets as brute force, wherever features lie
    python benchmarks/neighbors.py --switch  # where the tree stops and the approximate search wins
    python benchmarks/neighbors.py --large   # 1,000,000 x 64, approximate, in bounded memory
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import timing
import torch
from torch import Tensor, nn

from mindgap import Recipe, Subject, fit
from mindgap.data import cifar10, mnist
from mindgap.nets import LeNet5, ResNet20
from mindgap.ops.models.head import head_features
from mindgap.ops.neighbors.backends import tree_blocks
from mindgap.ops.neighbors.exact import exact_blocks
from mindgap.ops.neighbors.points import as_points
from mindgap.ops.neighbors.scores import joined
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.local import local_variance
from mindgap.ops.variance.moments import Classes
from mindgap.ops.variance.weights import scale_weights

N, K, PART = 50_000, 20, 500
CACHE = Path(tempfile.gettempdir()) / "mindgap-benchmark-neighbors"


def narrow() -> nn.Module:
    """LeNet-5 whose penultimate layer is 64 wide instead of 84."""
    net = LeNet5()
    net[9], net[11] = nn.Linear(120, 64), nn.Linear(64, 10)
    return net


def trained(make: Callable[[], nn.Module]) -> nn.Module:
    recipe = Recipe(
        model=make, train=mnist().train, loss="cross_entropy", optimizer="sgd", momentum=0.9, learning_rate=0.02,
        epochs=1, batch_size=64,
    )  # fmt: skip
    return fit(recipe, seed=0, evaluate_every=0).model.eval()


def penultimate(model: Any, images: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model[:11](block) for block in images.split(2000)])


def features(width: int) -> tuple[Tensor, Tensor]:
    """All 60,000 features and labels, from the cache if they are there."""
    path = CACHE / f"lenet-{width}.pt"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        images, labels = mnist().train
        torch.save((penultimate(trained(narrow if width == 64 else LeNet5), images), labels), path)
    rows, labels = torch.load(path, weights_only=True)
    return rows, labels


def components() -> tuple[Tensor, Tensor]:
    """The 64 first principal components of the pixels: features that fill their space better than LeNet-5's."""
    images, labels = mnist().train
    rows = images.reshape(len(labels), -1)[:N]
    rows = rows - rows.mean(0)
    return (rows @ torch.linalg.eigh(rows.T @ rows).eigenvectors[:, -64:]).contiguous(), labels[:N]


def residual() -> tuple[Tensor, Tensor]:
    """The 64 features that enter the head of a ResNet-20, of CIFAR-10's 50,000 training images: 20 minutes."""
    path = CACHE / "resnet-20.pt"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        data = cifar10()
        images = ((data.inputs - 0.47) / 0.25).contiguous(memory_format=torch.channels_last)
        torch.manual_seed(0)
        model = ResNet20().to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(model.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 3e-3, total_steps=1500, pct_start=0.3
        )
        random = torch.Generator().manual_seed(0)
        for _ in range(3):
            for batch in torch.randperm(N, generator=random).split(100):
                loss = nn.functional.cross_entropy(model(images[batch]), data.targets[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        subject = Subject(
            model.eval(), "cross_entropy", (images, data.targets), check_determinism=False
        )
        torch.save((head_features(subject, "train", "head").float(), data.targets), path)
    rows, labels = torch.load(path, weights_only=True)
    return rows, labels


def authors_loop(tree: Any, rows: np.ndarray, one_hot: np.ndarray) -> np.ndarray:
    """The authors' manner: one query, one variance at a time."""
    found = []
    for row in rows[:PART]:
        _, index = tree.query(np.reshape(row, (1, -1)), K, return_distance=True)
        found.append(np.sum(np.var(one_hot[index[0]], axis=0)))
    return np.array(found) * K / (K - 1)  # theirs is the biased variance


def scikit_learn(rows: np.ndarray) -> np.ndarray:
    from sklearn.neighbors import NearestNeighbors

    return (
        NearestNeighbors(n_neighbors=K, algorithm="brute")
        .fit(rows)
        .kneighbors(rows, return_distance=False)
    )


def faiss_flat(rows: np.ndarray) -> np.ndarray:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(rows)
    return index.search(rows, K)[1]


def speed(name: str, rows: Tensor, labels: Tensor) -> list[dict[str, Any]]:
    from sklearn.neighbors import KDTree
    from threadpoolctl import threadpool_limits

    array, one_hot = rows.numpy(), np.eye(10)[labels.numpy()]
    local_variance(rows[:5000], labels[:5000], k=K)
    with threadpool_limits(1):
        found, *first = timing.timed(lambda: local_variance(rows, labels, k=K, method="exact"))
        _, *brute = timing.timed(lambda: scikit_learn(array))
        flat = (
            timing.timed(lambda: faiss_flat(array))[1:]
            if importlib.util.find_spec("faiss")
            else None
        )
        _, *second = timing.timed(lambda: local_variance(rows, labels, k=K, method="exact"))
        tree = KDTree(array, leaf_size=2)  # as the authors plant it; not timed
        loop, *slow = timing.timed(lambda: authors_loop(tree, array, one_hot))
    own = [
        (a + b) / 2 for a, b in zip(first, second, strict=True)
    ]  # before and after the peers: the clock drifts
    error = float(np.abs(found.variance[:PART].numpy() - loop).max())
    assert error < 1e-10, f"the variances differ by {error:.1e}"
    note = (
        f"The loop ran {PART} of {N} samples; its time is scaled. Variances agree to {error:.0e}."
    )
    only = "It finds neighbors only."
    result = [
        timing.figures(
            f"{name}: authors' loop over a KD-tree", slow, own, wanted=40, scale=N / PART, note=note
        ),
        timing.figures(f"{name}: scikit-learn's brute force", brute, own, wanted=1.3, note=only),
    ]
    if flat is None:
        print("faiss is not installed: its comparison is skipped. Run: pip install faiss-cpu")
        return result
    return [*result, timing.figures(f"{name}: FAISS Flat", flat, own, wanted=1 / 1.5, note=only)]


def trials(rows: Tensor) -> Iterator[tuple[str, Tensor]]:
    side = torch.where(torch.arange(len(rows)) % 2 == 0, 1e4, -1e4)[:, None]
    yield "plain", rows
    yield "offset of 1e4", rows + 1e4
    yield "two clusters at ±1e4", rows + side
    yield "one feature scaled by 1e4", torch.cat([rows[:, :1] * 1e4, rows[:, 1:]], dim=1)
    yield "one outlier at 1e6", torch.cat([rows[:-1], rows[-1:] + 1e6])
    yield "rounded to whole numbers", rows.round()
    yield "double precision", rows.double() + 1e4 / 3


def reference(rows: Tensor, labels: Tensor, queries: Tensor) -> tuple[list[set[int]], list[float]]:
    """Neighbor sets (ties included) and, of rows without ties, variances: direct differences in double precision."""
    base, one_hot, sets, variances = rows.double().numpy(), np.eye(10)[labels.numpy()], [], []
    for query in queries.tolist():
        square = np.square(base - base[query]).sum(1)
        kth = np.partition(square, K - 1)[K - 1]
        near = np.flatnonzero(square <= kth * (1 + 1e-12))
        sets.append(set(near.tolist()))
        variances.append(one_hot[near].var(axis=0, ddof=1).sum() if len(near) == K else np.nan)
    return sets, variances


def exactness(queries: int = 300, shuffled: int = 20_000) -> list[dict[str, Any]]:
    rows, labels = features(84)
    some = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:queries]
    result = []
    for name, table in trials(rows):
        sets, variances = reference(table, labels, some)
        wrong, error = _compared(table, labels, some, sets, np.array(variances))
        order = torch.randperm(shuffled, generator=torch.Generator().manual_seed(1))
        few, few_labels = table[-shuffled:], labels[-shuffled:]
        plain = VarianceWeights(k=K, method="exact").fit(few, few_labels).weights_
        moved = VarianceWeights(k=K, method="exact").fit(few[order], few_labels[order]).weights_
        changed = int((plain[order] != moved).sum())
        result.append(
            {"name": name, "wrong_sets": wrong, "variance_error": error, "weights_changed": changed}
        )
        verdict = "ok   " if not wrong and error < 1e-10 and not changed else "WRONG"
        print(f"{verdict} {name}: {wrong} of {queries} sets differ, variance error {error:.0e}, "
              f"{changed} of {shuffled} weights change under shuffling", flush=True)  # fmt: skip
    return result


def _compared(
    table: Tensor, labels: Tensor, some: Tensor, sets: list[set[int]], variances: np.ndarray
) -> tuple[int, float]:
    points = as_points(table, labels, metric="euclidean", standardize=False)
    mine = points.table.owner[some].tolist()
    near = joined(list(exact_blocks(points, torch.arange(len(points)), K, 2**28)))
    start, member = points.table.start, points.table.member
    wrong = 0
    for point, wanted in zip(mine, sets, strict=True):
        index = near.index[near.start[point] : near.start[point + 1]].tolist()
        wrong += {
            sample for u in index for sample in member[start[u] : start[u + 1]].tolist()
        } != wanted
    own = Classes(points, labels).moments(near).expected_variance(K)[mine].numpy()
    return wrong, float(np.nanmax(np.abs(own - variances)))


def switch() -> list[dict[str, Any]]:
    rows = features(64)[0][:20_000]
    rows = (rows - rows.mean(0)) @ torch.linalg.svd(rows - rows.mean(0), full_matrices=False).Vh.T
    uniform = torch.rand(20_000, 32, generator=torch.Generator().manual_seed(0))
    result = []
    for name, table in (("principal components", rows), ("uniform", uniform)):
        for dimension in (2, 4, 6, 8, 10, 12, 16):
            points = as_points(
                table[:, :dimension].contiguous(), None, metric="euclidean", standardize=False
            )
            every = torch.arange(len(points))
            times = [
                timing.timed(lambda: sum(len(near.index) for near in find(points, every, K, 2**28)))  # noqa: B023
                for find in (exact_blocks, tree_blocks)
            ]
            assert times[0][0] == times[1][0]
            result.append(
                {"name": f"{name}, {dimension}", "products": times[0][1], "tree": times[1][1]}
            )
            print(
                f"{name}, {dimension} dimensions: products {times[0][1]:.2f} s, tree "
                f"{times[1][1]:.2f} s",
                flush=True,
            )
    return result


def switch_approximate() -> list[dict[str, Any]]:
    """Exact against approximate at growing sizes: the whole job, from features to variances."""
    large_features()
    every = (
        torch.from_numpy(np.load(CACHE / "large.npy", mmap_mode="r")),
        np.load(CACHE / "large-labels.npy"),
    )
    result = []
    for count in (25_000, 50_000, 100_000, 200_000, 400_000):
        order = (
            torch.randperm(len(every[0]), generator=torch.Generator().manual_seed(0))[:count]
            .sort()
            .values
        )
        rows, labels = every[0][order].clone(), torch.from_numpy(every[1])[order]
        times = {}
        for method in ("exact", "approximate"):
            found, cpu, _ = timing.timed(
                lambda m=method, r=rows, y=labels: local_variance(r, y, k=K, method=m)
            )
            times[method] = cpu
        result.append({"name": f"{count} rows", **times, "recall": found.recall})
        print(
            f"{count} rows: exact {times['exact']:.1f} s, approximate {times['approximate']:.1f} s",
            flush=True,
        )
    return result


def large_features(count: int = 1_000_000) -> Path:
    """Features of MNIST images shifted by up to two pixels, on disk, with their labels beside them."""
    path = CACHE / "large.npy"
    if path.exists():
        return path
    CACHE.mkdir(exist_ok=True)
    images, labels = mnist().train
    model, shifts = trained(narrow), [(a, b) for a in range(-2, 3) for b in range(-2, 3)]
    parts = [
        penultimate(model, images.roll(shift, (2, 3)))
        for shift in shifts[: -(-count // len(labels))]
    ]
    np.save(CACHE / "large-labels.npy", labels.repeat(len(parts))[:count].numpy())
    np.save(path, torch.cat(parts)[:count].numpy())
    return path


def resident() -> float:
    """Gigabytes of memory in use now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 2**20


def large_child(method: Any) -> dict[str, Any]:
    """In a process of its own, so that the peak of memory is that of the search."""
    torch.set_num_threads(1)
    if method == "approximate":
        import faiss

        faiss.omp_set_num_threads(1)
    rows, labels = (torch.from_numpy(np.load(CACHE / f"large{end}.npy")) for end in ("", "-labels"))
    before = resident()
    found, cpu, wall = timing.timed(
        lambda: local_variance(rows, labels, k=K, method=method, progress=True)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20 - before
    np.save(CACHE / f"large-{method}.npy", found.variance.numpy())
    return {
        "name": f"{len(rows)} x {rows.shape[1]}, {method}", "cpu_seconds": cpu, "wall_seconds": wall,
        "peak_gigabytes_above_input": peak, "recall": found.recall,
    }  # fmt: skip


def large() -> list[dict[str, Any]]:
    from scipy.stats import spearmanr

    large_features()
    result = []
    for method in ("exact", "approximate"):
        command = [sys.executable, __file__, "--large-child", method]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        result.append(json.loads(output.splitlines()[-1]))
        pair = [np.load(CACHE / f"large-{name}.npy") for name in ("exact", method)]
        row = result[-1]
        row["weight_spearman"] = float(
            spearmanr(*(scale_weights(torch.from_numpy(v), 40) for v in pair))[0]
        )
        good = (
            row["recall"] >= 0.99
            and row["weight_spearman"] >= 0.999
            and row["peak_gigabytes_above_input"] < 2
        )
        print("ok  " if good else "MISS", row, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="write the figures to this file")
    for name in ("exact", "switch", "large"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--large-child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.large_child:
        print(json.dumps(large_child(arguments.large_child)))
        return
    with timing.alone():
        rows = speed("ResNet-20 features", *residual())
        rows += speed("LeNet-5 features", *(value[:N] for value in features(64)))
        rows += speed("principal components of pixels", *components())
        for row in rows:
            timing.show(row)
        parts = (
            (arguments.exact, exactness),
            (arguments.switch, switch),
            (arguments.switch, switch_approximate),
        )
        for chosen, part in (*parts, (arguments.large, large)):
            rows += part() if chosen else []
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
