"""Draw the loss around a trained model, or between two.

  mindgap landscape my_model.py:make_subject --report landscape.html --csv losses.csv
  mindgap landscape --data digits --directions trajectory --report landscape.html
  mindgap landscape a.py:make_subject --to b.py:make_subject --png surface.png

Directions are random and filter-normalized (Li et al., 2018), eigenvectors of the Hessian, or the
plane of the training run. With --to, the plane holds both minima and a bent path of low loss
between them (Garipov et al., 2018).
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.commands.examine import EXAMPLE
from mindgap.cli.commands.train import add_network
from mindgap.cli.options import refuse
from mindgap.cli.output import check_page, note, write, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("target", nargs="?", metavar="FILE.py:FUNCTION", help=EXAMPLE)
    parser.add_argument("--data", metavar="NAME", help="train on this data set instead of a target")
    add_network(parser)
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the data of --data (100)"
    )
    parser.add_argument(
        "--to",
        metavar="OTHER",
        help="a second model, as FILE.py:FUNCTION, or another seed with --data",
    )
    parser.add_argument(
        "--directions",
        choices=("random", "hessian", "trajectory"),
        default="random",
        help="what the plane is made of (random)",
    )
    parser.add_argument(
        "--normalize",
        choices=("filter", "layer", "none"),
        default="filter",
        help="how random directions are scaled to the weights (filter)",
    )
    parser.add_argument(
        "--points", type=int, metavar="N", default=25, help="points in each direction (25)"
    )
    parser.add_argument(
        "--span", type=float, metavar="X", help="how far the grid reaches (1 if scaled)"
    )
    parser.add_argument(
        "--dimensions", type=int, metavar="N", default=2, help="1 for a line, 2 for a surface (2)"
    )
    parser.add_argument(
        "--batch-norm",
        choices=("running", "recomputed"),
        help="statistics of batch normalization (running; recomputed with --to)",
    )
    parser.add_argument(
        "--which", choices=("train", "test"), default="train", help="whose loss (train)"
    )
    parser.add_argument(
        "--samples", type=int, metavar="N", default=2000, help="the most samples to use (2000)"
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", default=600, help="steps of the search for a path (600)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", default=0, help="seed of directions and samples (0)"
    )
    parser.add_argument("--csv", metavar="PATH.csv", help="write all points and losses here")
    parser.add_argument("--png", metavar="PATH.png", help="write an image of the surface here")
    parser.add_argument("--report", "-o", metavar="PATH.html", help="write a page with all charts")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Load or train, compute, write."""
    from mindgap.jobs.landscape.job import landscape

    for path, ending in ((arguments.csv, ".csv"), (arguments.png, ".png")):
        check_page(path, (ending,))
    check_page(arguments.report)
    shown = not (arguments.quiet or arguments.json)
    subject, other = _subjects(arguments, shown)
    names = ("directions", "normalize", "points", "span", "dimensions", "batch_norm", "which")
    more = ("samples", "steps", "seed")
    found = landscape(
        subject,
        to=other,
        progress=shown,
        **{name: getattr(arguments, name) for name in (*names, *more)},
    )
    write_json(found.to_dict()) if arguments.json else write(str(found))
    for path in filter(None, (arguments.csv, arguments.png, arguments.report)):
        note(f"The landscape is at {Path(found.save(path)).resolve()}")
    return 0


def _subjects(arguments: argparse.Namespace, shown: bool) -> tuple[Any, Any]:
    """Return the model and the second one, if there is one."""
    from mindgap.cli.target import load_subject
    from mindgap.core import InputError

    if (arguments.target is None) == (arguments.data is None):
        raise InputError(
            "landscape must get either a target or --data, got "
            f"{'neither' if arguments.data is None else 'both'}. Name {EXAMPLE}."
        )
    if arguments.target is not None:
        refuse(arguments, "a target", "net", "width", "epochs")
        other = None if arguments.to is None else load_subject(arguments.to)
        return load_subject(arguments.target), other
    return _trained(arguments, shown)


def _trained(arguments: argparse.Namespace, shown: bool) -> tuple[Any, Any]:
    from mindgap.cli.options import whole_numbers
    from mindgap.cli.recipe import default_recipe
    from mindgap.training.fit import fit

    recipe = default_recipe(arguments.data, arguments.net, arguments.width)
    if arguments.epochs is not None:
        recipe = recipe.replace(epochs=arguments.epochs)
    seeds = [0, *(whole_numbers("--to", arguments.to)[:1] if arguments.to is not None else ())]
    fitted = [fit(recipe, seed=seed, evaluate_every=0, progress=shown) for seed in seeds]
    return fitted[0], fitted[1] if len(fitted) > 1 else None
