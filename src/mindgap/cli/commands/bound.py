"""Evaluate a bound on plain numbers, or on a model of your own.

  mindgap bound validation-set-guarantee --empirical 0.01 --samples 10000 --hypotheses 100
  mindgap bound binomial-tail --subject my_model.py:make_subject

Without --subject, the numbers are given as options.
"""

import argparse
import inspect
from typing import Any

from mindgap.cli.output import write, write_json

FAMILY = "bound"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command and the numbers that the bound needs."""
    from mindgap.cli.options import add_option

    parser.add_argument(
        "--subject",
        metavar="FILE.py:FUNCTION",
        help="take the numbers from the mindgap.Subject that this function returns",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    bound: Any = parser.get_default("spec")
    if bound is not None:
        group = parser.add_argument_group("numbers, needed without --subject")
        for name, (hint, default) in bound.arguments().items():
            optional = default is not inspect.Parameter.empty and default is not None
            add_option(group, name, hint, None, f"default {default}" if optional else "")


def run(arguments: argparse.Namespace) -> int:
    """Print the bound, its terms and its flags."""
    from mindgap.cli.options import refuse, take
    from mindgap.cli.target import load_subject
    from mindgap.training.fitted import Fitted

    bound: Any = take(arguments.spec, arguments)
    if arguments.subject is not None:
        refuse(arguments, "--subject", *bound.arguments())
        found = load_subject(arguments.subject)
        result = bound(found.subject() if isinstance(found, Fitted) else found)
    else:
        given = {name: getattr(arguments, name) for name in bound.arguments()}
        result = bound.evaluate(
            **{name: value for name, value in given.items() if value is not None}
        )
    if arguments.json:
        write_json(result.to_dict())
    else:
        write(_text(bound, result))
    return 0


def _text(bound: Any, result: Any) -> str:
    from mindgap.core.chart.numbers import rounded_up

    if result.value is None:
        return f"{result.name}: undefined, {result.reason}"
    flags = [
        "valid" if result.valid else f"NOT valid: {result.reason}",
        "vacuous" if result.vacuous else "non-vacuous",
    ]
    lines = [
        f"{result.name} = {rounded_up(result.value, 10)}   ({', '.join(flags)}; confidence "
        f"{1 - bound.delta:g})"
    ]
    return "\n".join(lines + [f"  {name:12} {value:.10g}" for name, value in result.terms.items()])
