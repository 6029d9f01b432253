"""Train a network on a data set (or your own recipe), then examine it.

mindgap train --data digits --remedy dropout:rate=0.3 --report report.html
mindgap train --recipe my_model.py:make_recipe --checkpoint run.pt
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.commands.examine import add_report_options, check_writable, show
from mindgap.cli.output import note


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("--data", default="digits", help="name of a data set (digits)")
    parser.add_argument(
        "--net", help="name of a network (mlp for vectors and small images, lenet5 for 28×28)"
    )
    parser.add_argument(
        "--width", type=int, default=64, help="width of the MLP's hidden layer (64)"
    )
    parser.add_argument(
        "--recipe",
        metavar="FILE.py:FUNCTION",
        help="a function that returns a mindgap.Recipe, instead",
    )
    parser.add_argument("--epochs", type=int, help="passes over the training data (100)")
    parser.add_argument("--batch-size", type=int, help="samples a step (64)")
    parser.add_argument("--learning-rate", type=float, help="step size (0.001)")
    parser.add_argument("--optimizer", help="sgd, adam, adamw or rmsprop (adam)")
    parser.add_argument(
        "--validation", type=float, help="share of the training data held out for choices (0)"
    )
    parser.add_argument(
        "--label-noise", type=float, default=0.0, help="share of training labels to make wrong (0)"
    )
    parser.add_argument(
        "--remedy",
        action="append",
        default=[],
        metavar="NAME[:FIELD=VALUE,…]",
        help="may be repeated",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and batches (0)")
    parser.add_argument(
        "--checkpoint",
        metavar="PATH",
        help="write after every epoch, and go on from it if it exists",
    )
    parser.add_argument("--save", metavar="PATH", help="write the trained state dict here")
    add_report_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train, save, examine."""
    from mindgap.training.fit import fit

    for path in (arguments.report, arguments.save, arguments.checkpoint):
        check_writable(path)
    remedies = [parse_remedy(text) for text in arguments.remedy]
    recipe = _recipe(arguments)
    shown = not (arguments.quiet or arguments.json)
    fitted = fit(
        recipe, remedies, seed=arguments.seed, checkpoint=arguments.checkpoint, progress=shown
    )
    if fitted.stopped:
        note(f"Training stopped: {fitted.stopped}.")
    if arguments.save:
        save(fitted.model, Path(arguments.save), "The weights are")
    code = show(fitted, arguments)
    return 1 if fitted.diverged or fitted.stopped.startswith("interrupted") else code


def parse_remedy(text: str) -> Any:
    """A remedy from ``name:field=value,field=value``."""
    from mindgap.cli.options import from_text

    return from_text(text, "remedy", "dropout:rate=0.3")


def _recipe(arguments: argparse.Namespace) -> Any:
    from mindgap.cli.target import load_target
    from mindgap.core import InputError, Recipe

    recipe = (
        load_target(arguments.recipe, "make_recipe")
        if arguments.recipe
        else default_recipe(arguments)
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


def default_recipe(arguments: argparse.Namespace) -> Any:
    """The recipe of a named data set and network."""
    from mindgap import data, nets
    from mindgap.core import InputError, Recipe

    found = data.load(arguments.data)
    if found.texts is not None:
        raise InputError(
            f"--data must name a set of vectors or images, got the texts of {arguments.data!r}. "
            "Encode them and pass "
            "--recipe."
        )
    if arguments.label_noise:
        found, _ = data.with_label_noise(found, arguments.label_noise, seed=arguments.seed)
    outputs = len(found.classes or ()) or _outputs(found)
    shape = found.inputs.shape[1:]
    net = arguments.net or ("lenet5" if tuple(shape) == (1, 28, 28) else "mlp")
    options = (
        {"widths": (shape.numel(), arguments.width, outputs)}
        if net == "mlp"
        else {"classes": outputs}
    )
    nets.build(net, **options)  # a wrong name or size is told before training
    return Recipe(
        model=lambda: nets.build(net, **options),
        train=found.train,
        test=found.test,
        loss="mse" if found.task == "regression" else "cross_entropy",
        classes=found.classes or (),
        name=f"{net} on {arguments.data}",
        epochs=100,
    )


def _outputs(found: Any) -> int:
    return (
        int(found.targets.max()) + 1
        if found.task == "classification"
        else int(found.targets.shape[-1])
    )


def save(model: Any, path: Path, what: str) -> None:
    """Write a state dict whole or not at all, and say where it is."""
    import torch

    from mindgap.core import write_whole

    write_whole(path, lambda file: torch.save(model.state_dict(), file))
    note(f"{what} at {path.resolve()}")
