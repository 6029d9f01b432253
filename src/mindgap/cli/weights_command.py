"""Weigh samples by the variance of the labels around them: VBSW on a file of yours.

  mindgap weights data.npz --k 20 --max-weight 40 -o weights.npy

The .npz file holds the features as x (or X, inputs, data, features) and the labels as y (or targets, labels,
target). The weights serve as any sample_weight.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.examine_command import check_writable
from mindgap.cli.output import note, write, write_json

FEATURES = ("x", "X", "inputs", "data", "features")
LABELS = ("y", "targets", "labels", "target")


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("data", metavar="DATA.npz", help="features and labels")
    parser.add_argument("--k", type=int, default=20, help="neighbours, the sample itself included (20)")
    parser.add_argument("--max-weight", type=float, default=40.0, help="largest weight (40)")
    parser.add_argument("--normalize", action="store_true", help="divide by the mean weight")
    parser.add_argument("--standardize", action="store_true", help="divide each feature by its standard deviation")
    parser.add_argument("--metric", choices=("euclidean", "cosine"), default="euclidean", help="distance (euclidean)")
    parser.add_argument(
        "--noise", choices=("keep", "cap", "drop"), default="keep", help="what to do with suspects (keep)"
    )
    parser.add_argument("--output", "-o", metavar="PATH", help="write the weights here as .npy")
    parser.add_argument("--heaviest", type=int, default=10, help="number of heaviest samples to show (10)")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Read, weigh, write."""
    from mindgap.ops.variance_weights import VarianceWeights

    check_writable(arguments.output)
    features, labels = _read(Path(arguments.data))
    weigher = VarianceWeights(
        k=arguments.k,
        max_weight=arguments.max_weight,
        normalize="mean" if arguments.normalize else None,
        standardize=arguments.standardize,
        metric=arguments.metric,
        noise=arguments.noise,
        progress=not (arguments.quiet or arguments.json),
    ).fit(features, labels)
    facts = _facts(weigher, labels, arguments.heaviest)
    if arguments.json:
        write_json(facts)
    else:
        write(_text(facts))
    if arguments.output:
        _save(Path(arguments.output), weigher.weights_)
    return 0


def _read(path: Path) -> tuple[Any, Any]:
    from mindgap.core.errors import InputError

    arrays = _arrays(path)
    names = [next((name for name in wanted if name in arrays), "") for wanted in (FEATURES, LABELS)]
    if "" in names:
        raise InputError(
            f"{path} must hold features ({', '.join(FEATURES)}) and labels ({', '.join(LABELS)}), got "
            f"{', '.join(arrays) or 'nothing'}. Rename the arrays."
        )
    features, labels = (arrays[name] for name in names)
    return features.reshape(len(features), -1), labels


def _arrays(path: Path) -> dict[str, Any]:
    import zipfile

    import numpy as np

    from mindgap.core.errors import InputError

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except FileNotFoundError as error:
        raise InputError(f"The data must be an existing .npz file, got {str(path)!r}. Check the path.") from error
    except (ValueError, OSError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(
            f"The data must be an .npz file of plain arrays, got {str(path)!r} ({' '.join(str(error).split())[:120]}). "
            "Write it with numpy.savez."
        ) from error


def _facts(weigher: Any, labels: Any, heaviest: int) -> dict[str, Any]:
    import numpy as np

    weights = weigher.weights_
    order = np.argsort(-weights, kind="stable")[:heaviest]
    return {
        "samples": len(weights),
        "mean": float(weights.mean()),
        "quantiles": {str(q): float(np.quantile(weights, q)) for q in (0.5, 0.9, 0.99, 1.0)},
        "suspects": None if weigher.suspects_ is None else int(weigher.suspects_.sum()),
        "method": weigher.method_,
        "recall": float(weigher.recall_),
        "heaviest": [{"index": int(i), "label": labels[i].tolist(), "weight": float(weights[i])} for i in order],
    }


def _text(facts: dict[str, Any]) -> str:
    quantiles = ", ".join(f"{float(q):.0%} below {value:.4g}" for q, value in facts["quantiles"].items())
    found = "exact" if facts["recall"] == 1 else f"approximate, recall {facts['recall']:.3f}"
    lines = [f"{facts['samples']:,} samples, mean weight {facts['mean']:.4g}: {quantiles}", f"neighbours: {found}"]
    if facts["suspects"] is not None:
        lines.append(f"{facts['suspects']:,} samples look as if their label were wrong")
    rows = [f"  {row['index']:>8}  {row['weight']:>8.4g}  {row['label']}" for row in facts["heaviest"]]
    return "\n".join([*lines, "", f"  {'sample':>8}  {'weight':>8}  label", *rows])


def _save(path: Path, weights: Any) -> None:
    import numpy as np

    from mindgap.core.files import write_whole

    write_whole(path, lambda file: np.save(file, weights))
    note(f"The weights are at {path.resolve()}")
