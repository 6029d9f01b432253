"""Split the risk into approximation, estimation and optimization error.

  mindgap decompose --source heteroscedastic --width 8 --sizes 50,200,800 --report page.html
  mindgap decompose my_model.py:make_recipe --source my_model.py:draw

The source is a generator with known truth, or your own function that takes a size and a seed and
returns inputs and targets. Without one, small training sets are cut out of the recipe's own data.
"""

import argparse
from typing import Any

from mindgap.cli.output import answer, answer_options, check_page


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="FILE.py:FUNCTION",
        help="a function that returns a mindgap.Recipe (an MLP that fits the source)",
    )
    parser.add_argument(
        "--source",
        metavar="NAME",
        help="heteroscedastic, two-moons, gaussian-mixture, teacher, or FILE.py:FUNCTION",
    )
    parser.add_argument("--width", type=int, metavar="N", help="width of the MLP (64)")
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the training data (the recipe's)"
    )
    parser.add_argument(
        "--sizes", metavar="N,…", help="numbers of training samples (as many as the recipe has)"
    )
    parser.add_argument(
        "--risk", choices=("loss", "error"), default="loss", help="what is split (loss)"
    )
    counts = {
        "draws": (10, "training sets of every size"),
        "restarts": (4, "starts of every search for a minimum"),
        "references": (3, "large samples, one best network each"),
        "large": (5000, "samples in each of them"),
        "pool": (5000, "samples on which the risk is estimated"),
        "steps": (2000, "steps of Adam in every search"),
        "polish": (100, "iterations of L-BFGS after them"),
        "seed": (0, "seed of all of it"),
    }
    for name, (value, words) in counts.items():
        parser.add_argument(
            f"--{name}", type=int, metavar="N", default=value, help=f"{words} ({value})"
        )
    answer_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, decompose, show."""
    from mindgap.cli.options import whole_numbers
    from mindgap.jobs.decompose.job import decompose

    check_page(arguments.report, (".html", ".htm", ".json"))
    recipe, source = _recipe(arguments), arguments.source
    if source is not None and ":" in source:
        from mindgap.cli.target import find_target

        source = find_target(source, "draw")
    names = ("draws", "restarts", "references", "large", "pool", "steps", "polish", "seed", "risk")
    found = decompose(
        recipe,
        source,
        sizes=None if arguments.sizes is None else whole_numbers("--sizes", arguments.sizes),
        progress=not (arguments.quiet or arguments.json),
        **{name: getattr(arguments, name) for name in names},
    )
    answer(found, arguments)
    return 0


def _recipe(arguments: argparse.Namespace) -> Any:
    """Return the recipe of the target, or that of an MLP on the named source."""
    from mindgap.cli.options import refuse
    from mindgap.cli.recipe import default_recipe
    from mindgap.cli.target import load_target
    from mindgap.core import InputError, Recipe

    if arguments.target is None:
        if arguments.source is None or ":" in arguments.source:
            raise InputError(
                "decompose must get a recipe or the name of a source, got neither. Name "
                "FILE.py:FUNCTION, or --source heteroscedastic."
            )
        found = default_recipe(arguments.source, "mlp", arguments.width)
    else:
        refuse(arguments, "a target", "width")
        found = load_target(arguments.target, "make_recipe")
        if not isinstance(found, Recipe):
            raise InputError(
                f"{arguments.target} must return a mindgap.Recipe, got {type(found).__name__}. "
                "Return one."
            )
    return found if arguments.epochs is None else found.replace(epochs=arguments.epochs)
