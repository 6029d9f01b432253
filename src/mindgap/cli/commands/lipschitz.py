"""Bound how fast outputs can change, and certify predictions of your own model.

  mindgap lipschitz my_model.py:make_subject --report lipschitz.html
  mindgap lipschitz my_model.py:make_subject --radius 0.1 --radius 0.5 --steps 120 --json
  mindgap lipschitz my_model.py:make_subject --local 20

The upper bound is proved for all inputs. The lower bound is a slope that the model has at a place
that is found. --local bounds the constant in balls around samples, where it is smaller, and
certifies larger radii with it. Radii are Euclidean, in the units of the inputs.
"""

import argparse

from mindgap.cli.commands.examine import EXAMPLE
from mindgap.cli.output import answer, answer_options, check_page


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("target", metavar="FILE.py:FUNCTION", help=EXAMPLE)
    parser.add_argument(
        "--radius",
        action="append",
        type=float,
        metavar="X",
        help="Euclidean radius of the curve; may be repeated (0 to the largest certified)",
    )
    parser.add_argument(
        "--samples", type=int, metavar="N", default=1000, help="samples to certify at most (1000)"
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        default=36,
        help="steps that improve the bound, at most (36)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="X",
        help="CPU seconds after which no further step begins (no limit)",
    )
    parser.add_argument(
        "--ascent", type=int, metavar="N", default=150, help="steps towards steep places (150)"
    )
    parser.add_argument(
        "--starts", type=int, metavar="N", default=16, help="places the ascent starts from (16)"
    )
    parser.add_argument(
        "--inside", action="store_true", help="let the ascent stay in the range of the data"
    )
    parser.add_argument(
        "--local",
        type=int,
        metavar="N",
        default=0,
        help="samples that get a bound in a ball around them (0)",
    )
    parser.add_argument(
        "--ball",
        type=float,
        metavar="X",
        help="Euclidean radius of these balls (the one that certifies most)",
    )
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="seed of all draws (0)")
    answer_options(parser, samples=True)


def run(arguments: argparse.Namespace) -> int:
    """Load, bound, show."""
    from mindgap.cli.target import load_subject
    from mindgap.jobs.lipschitz.job import lipschitz

    check_page(arguments.report, (".html", ".htm", ".json", ".csv"))
    found = lipschitz(
        load_subject(arguments.target),
        radii=arguments.radius,
        samples=arguments.samples,
        steps=arguments.steps,
        seconds=arguments.seconds,
        ascent=arguments.ascent,
        starts=arguments.starts,
        inside=arguments.inside,
        local=arguments.local,
        ball=arguments.ball,
        seed=arguments.seed,
        progress=not (arguments.quiet or arguments.json),
    )
    answer(found, arguments)
    return 0
