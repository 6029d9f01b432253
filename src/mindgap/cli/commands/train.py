"""Train a network on a data set or by your own recipe, then examine it.

mindgap train --data digits --remedy dropout:rate=0.3 --report report.html
mindgap train --recipe my_model.py:make_recipe --checkpoint run.pt
"""

import argparse
from typing import Any

from mindgap.cli.commands.examine import add_report_options, show
from mindgap.cli.output import check_writable, note, save_weights


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--data", metavar="NAME", default="digits", help="name of a data set (digits)"
    )
    parser.add_argument(
        "--net",
        metavar="NAME",
        help="name of a network (mlp for vectors and small images, lenet5 for 28×28)",
    )
    parser.add_argument(
        "--width", type=int, metavar="N", default=64, help="width of the MLP's hidden layer (64)"
    )
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
        default=0.0,
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


def run(arguments: argparse.Namespace) -> int:
    """Train, save, examine."""
    from mindgap.training.fit import fit

    check_writable(arguments.report, arguments.save, arguments.checkpoint)
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
    code = show(fitted, arguments)
    return 1 if fitted.diverged or fitted.stopped.startswith("interrupted") else code


def parse_remedy(text: str) -> Any:
    """Make a remedy from ``name:field=value,field=value``."""
    from mindgap.cli.options import from_text

    return from_text(text, "remedy", "dropout:rate=0.3")


def _recipe(arguments: argparse.Namespace) -> Any:
    from mindgap.cli.target import load_target
    from mindgap.core import InputError, Recipe

    if arguments.recipe:
        recipe = load_target(arguments.recipe, "make_recipe")
    else:
        noise = {"label_noise": arguments.label_noise, "seed": arguments.seed}
        recipe = default_recipe(arguments.data, arguments.net, arguments.width, **noise)
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


def default_recipe(
    name: str, net: str | None, width: int, *, label_noise: float = 0.0, seed: int = 0
) -> Any:
    """Make the recipe of a named data set and network.

    Args:
        name: Name of the data set.
        net: Name of the network; None chooses one that fits the data.
        width: Width of the hidden layer of an MLP.
        label_noise: Share of the training labels to replace by wrong ones.
        seed: Seed of the label noise.
    """
    from mindgap import data, nets
    from mindgap.core import InputError, Recipe

    found = data.load(name)
    if found.texts is not None:
        raise InputError(
            f"The data set must hold vectors or images, got the texts of {name!r}. Encode them "
            "and pass a recipe of your own."
        )
    if label_noise:
        found, _ = data.with_label_noise(found, label_noise, seed=seed)
    outputs = len(found.classes or ()) or _outputs(found)
    shape = found.inputs.shape[1:]
    net = net or ("lenet5" if tuple(shape) == (1, 28, 28) else "mlp")
    is_mlp = net == "mlp"
    options = {"widths": (shape.numel(), width, outputs)} if is_mlp else {"classes": outputs}
    nets.build(net, **options)  # a wrong name or size is reported before training
    return Recipe(
        model=lambda: nets.build(net, **options),
        train=found.train,
        test=found.test,
        loss="mse" if found.task == "regression" else "cross_entropy",
        classes=found.classes or (),
        name=f"{net} on {name}",
        epochs=100,
    )


def _outputs(found: Any) -> int:
    return (
        int(found.targets.max()) + 1
        if found.task == "classification"
        else int(found.targets.shape[-1])
    )
