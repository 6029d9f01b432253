"""Weigh samples by the variance of the labels around them: VBSW on a file of yours.

  mindgap weights data.npz --k 20 --max-weight 40 -o weights.npy --report weights.html

The .npz file holds the features as x (or X, inputs, data, features) and the labels as y (or
targets, labels, target). The weights serve as any sample_weight. With both x and features,
neighbors are sought in features and x is shown. The page shows the heaviest samples: x as images if
it has their shape, texts if the file holds them, else rows, named by feature_names.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.commands.examine import check_writable
from mindgap.cli.output import note, write, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("data", metavar="DATA.npz", help="features and labels")
    parser.add_argument(
        "--k", type=int, default=20, help="neighbors, the sample itself included (20)"
    )
    parser.add_argument("--max-weight", type=float, default=40.0, help="largest weight (40)")
    parser.add_argument("--normalize", action="store_true", help="divide by the mean weight")
    parser.add_argument(
        "--standardize", action="store_true", help="divide each feature by its standard deviation"
    )
    parser.add_argument(
        "--metric",
        choices=("euclidean", "cosine"),
        default="euclidean",
        help="distance (euclidean)",
    )
    parser.add_argument(
        "--noise",
        choices=("keep", "cap", "drop"),
        default="keep",
        help="what to do with suspects (keep)",
    )
    parser.add_argument("--output", "-o", metavar="PATH", help="write the weights here as .npy")
    parser.add_argument(
        "--report",
        metavar="PATH.html",
        help="write a page with the weights and the heaviest samples",
    )
    parser.add_argument(
        "--heaviest", type=int, default=10, help="number of heaviest samples to show (10)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Read, weigh, write."""
    from mindgap.jobs.weigh import read_arrays, tensors
    from mindgap.ops.variance.estimator import VarianceWeights
    from mindgap.report.sections.label_variance.summary import weigh

    _check_paths(arguments)
    given = read_arrays(arguments.data)
    weigher = VarianceWeights(
        k=arguments.k,
        max_weight=arguments.max_weight,
        normalize="mean" if arguments.normalize else None,
        standardize=arguments.standardize,
        metric=arguments.metric,
        noise=arguments.noise,
        progress=not (arguments.quiet or arguments.json),
    )
    weighed = weigh(weigher, *tensors(given))
    facts = _facts(weighed, given.labels, arguments.heaviest, told=arguments.noise != "keep")
    if arguments.json:
        write_json(facts)
    else:
        write(_text(facts))
    if arguments.output:
        _save(Path(arguments.output), weighed.weights.numpy())
    if arguments.report:
        _report(arguments, given, weigher, weighed)
    return 0


def _check_paths(arguments: argparse.Namespace) -> None:
    from mindgap.core import InputError

    for path in (arguments.output, arguments.report):
        check_writable(path)
    if arguments.report and Path(arguments.report).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"The page's path must end in .html, got {arguments.report!r}. Rename it.")


def _report(arguments: argparse.Namespace, given: Any, weigher: Any, weighed: Any) -> None:
    from mindgap.jobs.weigh import look_at
    from mindgap.report.pages.weights import Told, weights_page

    told = Told(
        source=Path(arguments.data).name,
        settings=weigher.get_params(),
        method=weighed.method,
        recall=weighed.recall,
        saved=arguments.output or "",
    )
    weights_page(look_at(given, weigher, weighed), told, arguments.report)
    note(f"The page is at {Path(arguments.report).resolve()}")


def _facts(weighed: Any, labels: Any, heaviest: int, told: bool) -> dict[str, Any]:
    import numpy as np

    weights = weighed.weights.numpy()
    order = np.argsort(-weights, kind="stable")[:heaviest]
    return {
        "samples": len(weights),
        "mean": float(weights.mean()),
        "quantiles": {str(q): float(np.quantile(weights, q)) for q in (0.5, 0.9, 0.99, 1.0)},
        "suspects": int(weighed.suspects.sum()) if told else None,
        "method": weighed.method,
        "recall": float(weighed.recall),
        "heaviest": [
            {"index": int(i), "label": labels[i].tolist(), "weight": float(weights[i])}
            for i in order
        ],
    }


def _text(facts: dict[str, Any]) -> str:
    quantiles = ", ".join(
        f"{float(q):.0%} at most {value:.4g}" for q, value in facts["quantiles"].items()
    )
    found = "exact" if facts["recall"] == 1 else f"approximate, recall {facts['recall']:.3f}"
    lines = [
        f"{facts['samples']:,} samples, mean weight {facts['mean']:.4g}: {quantiles}",
        f"neighbors: {found}",
    ]
    if facts["suspects"] is not None:
        lines.append(f"{facts['suspects']:,} samples look as if their label were wrong")
    rows = [
        f"  {row['index']:>8}  {row['weight']:>8.4g}  {row['label']}" for row in facts["heaviest"]
    ]
    return "\n".join([*lines, "", f"  {'sample':>8}  {'weight':>8}  label", *rows])


def _save(path: Path, weights: Any) -> None:
    import numpy as np

    from mindgap.core import write_whole

    write_whole(path, lambda file: np.save(file, weights))
    note(f"The weights are at {path.resolve()}")
