"""Train a network on a data set or by your own recipe, then examine it.

  mindgap train --data digits --remedy dropout:rate=0.3 --report report.html
  mindgap train --recipe my_model.py:make_recipe --checkpoint run.pt

The report is that of `mindgap examine`.
"""

import argparse
from typing import Any

from mindgap.cli import INTERRUPTED
from mindgap.cli.commands.examine import add_report_options, examine_settings, show
from mindgap.cli.options import refuse
from mindgap.cli.output import check_writable, note, save_weights


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--data", metavar="NAME", help="name of a data set (digits)")
    add_network(parser)
    parser.add_argument(
        "--recipe",
        metavar="FILE.py:FUNCTION",
        help="a function that returns a mindgap.Recipe, in place of --data and --net",
    )
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the training data (100)"
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="batch size (64)")
    parser.add_argument("--learning-rate", type=float, metavar="X", help="learning rate (0.001)")
    parser.add_argument("--optimizer", help="sgd, adam, adamw or rmsprop (adam)")
    parser.add_argument(
        "--validation",
        type=float,
        metavar="X",
        help="share of the training data held out to choose on (0)",
    )
    parser.add_argument(
        "--label-noise",
        type=float,
        metavar="X",
        help="share of the training labels to replace by wrong ones (0)",
    )
    parser.add_argument(
        "--remedy",
        action="append",
        default=[],
        metavar="NAME[:FIELD=VALUE,…]",
        help="a remedy to train with; may be repeated",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", default=0, help="seed of weights and batches (0)"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="PATH",
        help="write a checkpoint after every epoch, and resume from it if it exists",
    )
    parser.add_argument("--save", metavar="PATH", help="write the trained state dict here")
    add_report_options(parser)


def add_network(parser: Any) -> None:
    """Add the options that choose the network of a named data set."""
    parser.add_argument(
        "--net",
        metavar="NAME",
        help="name of a network (lenet5 for 28×28, transformer for tokens, mlp otherwise)",
    )
    parser.add_argument(
        "--width",
        type=int,
        metavar="N",
        help="width of the network (mlp, elman and gated 64, transformer 128, resnet 16)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train, save, examine."""
    from mindgap.training.fit import fit

    check_writable(arguments.save, arguments.checkpoint)
    settings = examine_settings(arguments)
    remedies = [parse_remedy(text) for text in arguments.remedy]
    recipe = _recipe(arguments)
    shown = not (arguments.quiet or arguments.json)
    fitted = fit(
        recipe, remedies, seed=arguments.seed, checkpoint=arguments.checkpoint, progress=shown
    )
    if fitted.stopped:
        note(f"Training stopped: {fitted.stopped}.")
    if arguments.save:
        save_weights(fitted.model, arguments.save, "The weights are")
    code = show(fitted, arguments, settings)
    if fitted.stopped.startswith("interrupted"):
        return INTERRUPTED
    return 1 if fitted.diverged else code


def parse_remedy(text: str) -> Any:
    """Make a remedy from ``name:field=value,field=value``."""
    from mindgap.cli.options import from_text

    return from_text(text, "remedy", "dropout:rate=0.3")


def _recipe(arguments: argparse.Namespace) -> Any:
    from mindgap.cli.recipe import default_recipe
    from mindgap.cli.target import load_target
    from mindgap.core import InputError, Recipe

    if arguments.recipe is not None:
        refuse(arguments, "--recipe", "data", "net", "width", "label_noise")
        recipe = load_target(arguments.recipe, "make_recipe")
    else:
        recipe = default_recipe(
            "digits" if arguments.data is None else arguments.data,
            arguments.net,
            arguments.width,
            label_noise=arguments.label_noise or 0.0,
            seed=arguments.seed,
        )
    if not isinstance(recipe, Recipe):
        raise InputError(
            f"{arguments.recipe} must return a mindgap.Recipe, got {type(recipe).__name__}. "
            "Return one."
        )
    names = ("epochs", "batch_size", "learning_rate", "optimizer", "validation")
    changes = {
        name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None
    }
    return recipe.replace(**changes)
