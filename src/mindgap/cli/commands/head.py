"""Train a model's last layer again, weighted by local label variance, and see whether it helps.

  mindgap head my_model.py:make_subject --report head.html -o head.pt

The largest weight m and the number of neighbors k are chosen on a part of the training data. The
test data judge once, beside the head trained again without weights and beside the same weights on
other samples. -o writes the new state dict, which loads back into your model's class.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.commands.examine import EXAMPLE, check_writable
from mindgap.cli.options import numbers, whole_numbers
from mindgap.cli.output import note, write, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("target", metavar="FILE.py:FUNCTION", help=EXAMPLE)
    parser.add_argument(
        "--search",
        choices=("grid", "random", "optuna"),
        default="grid",
        help="how to choose (grid)",
    )
    parser.add_argument("--max-weights", metavar="M,M", help="largest weights m to try")
    parser.add_argument("--ks", metavar="K,K", help="numbers of neighbors k to try")
    parser.add_argument(
        "--trials", type=int, default=50, help="settings to try with random or optuna (50)"
    )
    parser.add_argument(
        "--validation",
        type=float,
        default=0.2,
        help="share of the training data to choose on (0.2)",
    )
    parser.add_argument("--l2", type=float, default=1e-6, help="penalty on the head (1e-6)")
    parser.add_argument(
        "--standardize", action="store_true", help="divide each feature by its deviation"
    )
    parser.add_argument(
        "--head", default="", metavar="NAME", help="dotted name of the last linear layer (found)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the validation split and the permutation (0)"
    )
    parser.add_argument("--output", "-o", metavar="PATH", help="write the new state dict here")
    parser.add_argument(
        "--report",
        metavar="PATH.html",
        help="write a page here: the table and the map of the search",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Load, search, judge, write."""
    from mindgap.cli.target import load_subject
    from mindgap.jobs.head.choose import choose_head

    for path in (arguments.output, arguments.report):
        check_writable(path)
    found = choose_head(
        load_subject(arguments.target),
        **_lists(arguments),
        method=arguments.search,
        trials=arguments.trials,
        validation=arguments.validation,
        l2=arguments.l2,
        standardize=arguments.standardize,
        head=arguments.head,
        seed=arguments.seed,
        progress=not (arguments.quiet or arguments.json),
    )
    if arguments.json:
        chosen = dict(zip(("max_weight", "k"), found.search.best, strict=True))
        write_json({"chosen": chosen, **found.table().to_dict()})
    else:
        write(str(found.table()))
    _save(found, arguments)
    return 0


def _lists(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values to try, where the user gave some."""
    found: dict[str, Any] = {}
    if arguments.max_weights:
        found["max_weights"] = numbers("--max-weights", arguments.max_weights)
    if arguments.ks:
        found["ks"] = whole_numbers("--ks", arguments.ks)
    return found


def _save(found: Any, arguments: argparse.Namespace) -> None:
    import torch

    from mindgap.core import write_whole
    from mindgap.report.pages.study import study_page
    from mindgap.report.report import versions
    from mindgap.runs.work import now

    if arguments.output:
        write_whole(arguments.output, lambda file: torch.save(found.model.state_dict(), file))
        note(f"The state dict is at {Path(arguments.output).resolve()}")
    if arguments.report:
        fields = {
            name: value
            for name, value in vars(arguments).items()
            if name not in ("run", "json", "quiet")
        }
        results = {
            "study": "head",
            "fields": fields,
            "table": found.table().to_dict(),
            "versions": versions(),
            "date": now(),
        }
        study_page(results, arguments.report)
        note(f"The page is at {Path(arguments.report).resolve()}")
