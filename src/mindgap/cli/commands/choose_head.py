"""Retrain the last layer with variance-based weights, and test whether it helps.

  mindgap choose-head my_model.py:make_subject --report head.html -o head.pt

The largest weight m and the number of neighbors k are chosen on a part of the training data. The
test data are used once, to compare the chosen head with two controls: a head retrained without
weights, and a head retrained with the same weights on permuted samples. -o writes the new state
dict, which loads back into your model's class.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.commands.examine import EXAMPLE
from mindgap.cli.options import numbers, refuse, whole_numbers
from mindgap.cli.output import check_page, check_writable, note, write, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("target", metavar="FILE.py:FUNCTION", help=EXAMPLE)
    parser.add_argument(
        "--search",
        choices=("grid", "random", "optuna"),
        default="grid",
        help="how to search for m and k (grid)",
    )
    parser.add_argument("--max-weights", metavar="M,M", help="largest weights m to try")
    parser.add_argument("--ks", metavar="K,K", help="numbers of neighbors k to try")
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="settings to try with random or optuna (50)",
    )
    parser.add_argument(
        "--validation",
        type=float,
        metavar="X",
        default=0.2,
        help="share of the training data to choose on (0.2)",
    )
    parser.add_argument(
        "--l2",
        type=float,
        metavar="X",
        default=1e-6,
        help="L2 penalty on the weights of the head (1e-6)",
    )
    parser.add_argument(
        "--standardize", action="store_true", help="divide each feature by its standard deviation"
    )
    parser.add_argument(
        "--head",
        default="",
        metavar="NAME",
        help="dotted name of the last linear layer (found by itself)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        default=0,
        help="seed of the validation split and of the permutation (0)",
    )
    parser.add_argument("--output", "-o", metavar="PATH", help="write the new state dict here")
    parser.add_argument(
        "--report",
        metavar="PATH.html",
        help="write a page with the table and a map of the search",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Load, choose, compare, write."""
    from mindgap.cli.target import load_subject
    from mindgap.jobs.head.choose import choose_head

    check_writable(arguments.output)
    check_page(arguments.report)
    if arguments.search == "grid":
        refuse(arguments, "--search grid", "trials")
    found = choose_head(
        load_subject(arguments.target),
        **_lists(arguments),
        method=arguments.search,
        trials=50 if arguments.trials is None else arguments.trials,
        validation=arguments.validation,
        l2=arguments.l2,
        standardize=arguments.standardize,
        head=arguments.head,
        seed=arguments.seed,
        progress=not (arguments.quiet or arguments.json),
    )
    if arguments.json:
        write_json(found.to_dict())
    else:
        write(str(found.table()))
    if arguments.output:
        found.save(arguments.output)
        note(f"The state dict is at {Path(arguments.output).resolve()}")
    if arguments.report:
        found.save(arguments.report)
        note(f"The page is at {Path(arguments.report).resolve()}")
    return 0


def _lists(arguments: argparse.Namespace) -> dict[str, Any]:
    """Collect the values to try, where the user gave some."""
    found: dict[str, Any] = {}
    if arguments.max_weights is not None:
        found["max_weights"] = numbers("--max-weights", arguments.max_weights)
    if arguments.ks is not None:
        found["ks"] = whole_numbers("--ks", arguments.ks)
    return found
