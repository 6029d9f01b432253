"""The options of `mindgap sample`, and what they mean to the sampler."""

from __future__ import annotations

import argparse
import re
from typing import Any

from mindgap.cli.options import add_executor, numbers

TYPE_CHECKING = False  # as in mindgap/_lazy.py
if TYPE_CHECKING:
    from mindgap.sampling.box import Domain


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options; a default of None keeps the setting of a session."""
    parser._negative_number_matcher = re.compile(r"^-[\d.][\d.,eE+-]*$")  # --low -1,-1 is no option
    parser.add_argument(
        "target",
        nargs="?",
        metavar="FILE.py:FUNCTION",
        help="your function: takes one point (a NumPy array), returns one number or several",
    )
    parser.add_argument(
        "--command",
        metavar="TEXT",
        help="a program in place of a function: './sim {0} {1}'; {x} is all inputs, {file} a JSON "
        "file of them",
    )
    parser.add_argument("--shell", action="store_true", help="run the command in a shell")
    parser.add_argument(
        "--torch",
        action="store_true",
        help="the function takes a tensor with one point per row and can be differentiated",
    )
    _add_domain(parser.add_argument_group("domain"))
    _add_points(parser.add_argument_group("points"))
    _add_choice(parser.add_argument_group("how new points are chosen"))
    _add_evaluation(parser.add_argument_group("evaluation"))
    _add_files(parser.add_argument_group("files"))


def _add_domain(group: Any) -> None:
    group.add_argument(
        "--low", metavar="NUMBERS", help="lowest value of every input, separated by commas"
    )
    group.add_argument("--high", metavar="NUMBERS", help="highest value of every input")
    group.add_argument(
        "--simplex",
        type=int,
        metavar="N",
        help="N inputs that are parts of a whole, in place of --low and --high",
    )
    group.add_argument("--names", metavar="A,B", help="names of the inputs (x0,x1,…)")
    group.add_argument("--outputs", metavar="A,B", help="names of the values (y0,y1,…)")


def _add_points(group: Any) -> None:
    group.add_argument(
        "--initial", type=int, metavar="N", help="points of the initial design (16; 0 with --data)"
    )
    group.add_argument(
        "--new", type=int, metavar="N", help="points chosen by acquisition, in total (16)"
    )
    group.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        default=1,
        help="number of rounds in which the new points are chosen (1)",
    )
    group.add_argument(
        "--data",
        metavar="POINTS.csv",
        help="evaluations that you have, in place of an initial design",
    )
    group.add_argument(
        "--ask",
        type=int,
        metavar="N",
        help="only write N points to evaluate; 0 writes those still pending",
    )
    group.add_argument(
        "--tell",
        metavar="DONE.csv",
        help="take values from a file with the columns number and y0,y1,… or error",
    )
    group.add_argument(
        "--compare",
        type=int,
        metavar="N",
        default=0,
        help="evaluate N uniform points as well, only to say whether they would have done as well; "
        "1.25 times --new is best (0)",
    )


def _add_choice(group: Any) -> None:
    group.add_argument(
        "--initial-design",
        metavar="KIND",
        help="sobol, grid, uniform or latin-hypercube (sobol)",
    )
    group.add_argument(
        "--acquisition",
        metavar="KIND",
        help="neighbors, differences, sampled or derivative (neighbors; derivative with --torch)",
    )
    group.add_argument(
        "--proposal", metavar="KIND", help="pool, exact or mixture (pool; exact with --torch)"
    )
    group.add_argument(
        "--epsilon",
        type=float,
        metavar="X",
        help="variance of the noise behind derivative and sampled (0.001)",
    )
    group.add_argument("--order", type=int, metavar="N", help="order of the Taylor metric (2)")
    group.add_argument(
        "--neighbors",
        type=int,
        metavar="N",
        help="neighbors, the point itself included (2 per input and the point)",
    )
    group.add_argument(
        "--components",
        type=int,
        metavar="N",
        help="components of the mixture (3); 0 leaves the number to BIC",
    )
    group.add_argument(
        "--temper",
        type=float,
        metavar="X",
        help="power of the acquisition values; 1 leaves them as they are (0.5)",
    )
    group.add_argument(
        "--cap",
        type=float,
        metavar="X",
        help="quantile at which acquisition values are capped; 1 caps nothing (0.99)",
    )
    group.add_argument(
        "--uniform-share",
        type=float,
        metavar="X",
        help="share of the new points that are uniform (0)",
    )
    group.add_argument("--seed", type=int, metavar="N", help="seed of all random draws (0)")


def _add_evaluation(group: Any) -> None:
    group.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of evaluations at the same time (one per core)",
    )
    add_executor(group)
    group.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="kill an evaluation that takes longer"
    )
    group.add_argument(
        "--retries",
        type=int,
        metavar="N",
        default=0,
        help="further attempts at a point that fails (0)",
    )


def _add_files(group: Any) -> None:
    group.add_argument(
        "--session",
        metavar="PATH.jsonl",
        help="journal from which a killed run resumes where it stopped",
    )
    group.add_argument(
        "--output",
        "-o",
        metavar="POINTS.csv",
        help="write the points here instead of standard output",
    )
    group.add_argument("--report", metavar="PATH.html", help="write a page that shows the points")
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Collect the settings of the sampler that were given, by the names of its arguments."""
    acquisition = _given(
        arguments, kind="acquisition", epsilon="epsilon", order="order", neighbors="neighbors"
    )
    names = {
        "components": "components",
        "temper": "temper",
        "cap": "cap",
        "uniform_share": "uniform_share",
    }
    proposal = _given(arguments, kind="proposal", **names)
    return {"acquisition": acquisition, "proposal": proposal} | _given(
        arguments, initial="initial", initial_design="initial_design", seed="seed"
    )


def _given(arguments: argparse.Namespace, **names: str) -> dict[str, Any]:
    found = {field: getattr(arguments, option) for field, option in names.items()}
    return {field: value for field, value in found.items() if value is not None}


def domain_of(arguments: argparse.Namespace) -> Domain | None:
    """Make the domain that was given, if any."""
    from mindgap.core import InputError
    from mindgap.sampling import Box, Simplex

    if arguments.simplex is not None:
        if arguments.low or arguments.high:
            raise InputError(
                "--simplex must come without --low and --high, got both. Leave one of them out."
            )
        return Simplex(arguments.simplex)
    if (arguments.low is None) != (arguments.high is None):
        raise InputError("A box must have --low and --high, got one of them. Pass both.")
    return (
        None
        if arguments.low is None
        else Box(numbers("--low", arguments.low), numbers("--high", arguments.high))
    )
