"""Weigh the samples of a file by the variance of the labels around them.

  mindgap weigh data.npz --k 20 --max-weight 40 -o weights.npy --report weights.html

The .npz file holds the features as x (or X, inputs, data, features) and the labels as y (or
targets, labels, target). Use the weights as sample_weight anywhere. If the file holds both x and
features, neighbors are searched in features and x is shown. The page shows the heaviest samples: x
as images if it has their shape, texts if the file holds them, and rows named by feature_names
otherwise.
"""

import argparse
from pathlib import Path

from mindgap.cli.output import check_page, check_writable, note, write, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("data", metavar="DATA.npz", help="features and labels")
    parser.add_argument(
        "--k", type=int, metavar="N", default=20, help="neighbors, the sample itself included (20)"
    )
    parser.add_argument(
        "--max-weight", type=float, metavar="X", default=40.0, help="largest weight (40)"
    )
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
        help="what to do with samples whose label looks wrong (keep)",
    )
    parser.add_argument("--output", "-o", metavar="PATH", help="write the weights here as .npy")
    parser.add_argument(
        "--report",
        metavar="PATH.html",
        help="write a page with the weights and the heaviest samples",
    )
    parser.add_argument(
        "--heaviest",
        type=int,
        metavar="N",
        default=10,
        help="number of heaviest samples to show (10)",
    )
    parser.add_argument(
        "--suspects",
        metavar="PATH.csv",
        help="write all samples whose label looks wrong here, as CSV",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Read, weigh, write."""
    from mindgap.core import integer
    from mindgap.jobs.weigh.job import weigh

    integer("--heaviest", arguments.heaviest, 0)
    check_writable(arguments.output, arguments.suspects)
    check_page(arguments.suspects, (".csv",))
    check_page(arguments.report)
    found = weigh(
        arguments.data,
        k=arguments.k,
        max_weight=arguments.max_weight,
        normalize="mean" if arguments.normalize else None,
        standardize=arguments.standardize,
        metric=arguments.metric,
        noise=arguments.noise,
        progress=not (arguments.quiet or arguments.json),
    )
    if arguments.json:
        write_json(found.to_dict(arguments.heaviest))
    else:
        write(found.text(arguments.heaviest))
    if arguments.output:
        found.save(arguments.output)
        note(f"The weights are at {Path(arguments.output).resolve()}")
    if arguments.report:
        found.save(arguments.report, saved=arguments.output or "", heaviest=arguments.heaviest)
        note(f"The page is at {Path(arguments.report).resolve()}")
    if arguments.suspects:
        path = found.save_suspects(arguments.suspects).resolve()
        note(f"{int(found.suspects.sum()):,} suspects are at {path}")
    return 0
