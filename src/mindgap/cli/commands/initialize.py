"""Check whether signals and gradients pass initial weights, and get better ones.

  mindgap initialize my_model.py:make_subject --report initialize.html
  mindgap initialize my_model.py:make_subject --scheme orthogonal --scheme lsuv
  mindgap initialize my_model.py:make_subject --save weights.pt

One batch of training data passes through the network with its initial weights, and through copies
that every scheme re-initialized. If the weights from before training are unknown, those of the
model are followed as they are. The scheme is suggested whose signals and gradients stay furthest
from the limits of healthy networks. The model itself is not changed.
"""

import argparse

from mindgap.cli.commands.examine import EXAMPLE
from mindgap.cli.output import answer, answer_options, check_page, check_writable, save_weights


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("target", metavar="FILE.py:FUNCTION", help=EXAMPLE)
    parser.add_argument(
        "--scheme",
        action="append",
        metavar="NAME",
        help="kaiming-normal, kaiming-uniform, xavier-normal, xavier-uniform, orthogonal, lsuv or "
        "identity; may be repeated (all that apply)",
    )
    parser.add_argument(
        "--fan",
        choices=("in", "out"),
        default="in",
        help="what Kaiming's schemes keep: in for the variance of signals, out for gradients (in)",
    )
    parser.add_argument(
        "--gain",
        type=float,
        metavar="X",
        help="factor of all weights (follows from the data, layer by layer)",
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="training samples to follow at most (256, or fewer of a large network)",
    )
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="seed of all draws (0)")
    parser.add_argument(
        "--save",
        metavar="PATH",
        help="write the state dict of the suggested scheme here, or of the only one that is named",
    )
    answer_options(parser, lines="layer")


def run(arguments: argparse.Namespace) -> int:
    """Load, follow, show, save."""
    from mindgap.cli.target import load_subject
    from mindgap.jobs.initialize.job import initialize

    check_page(arguments.report, (".html", ".htm", ".json", ".csv"))
    check_writable(arguments.save)
    found = initialize(
        load_subject(arguments.target),
        schemes=arguments.scheme,
        fan=arguments.fan,
        gain=arguments.gain,
        samples=arguments.samples,
        seed=arguments.seed,
        progress=not (arguments.quiet or arguments.json),
    )
    answer(found, arguments)
    if arguments.save:
        save_weights(found.model, arguments.save, f"The weights of {found.suggested} are")
    return 0
