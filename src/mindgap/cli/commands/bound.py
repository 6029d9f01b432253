"""Evaluate a bound on plain numbers, or on a model of your own with --subject.

mindgap bound validation-set-guarantee --empirical 0.01 --samples 10000 --hypotheses 100
mindgap bound binomial-tail --subject my_model.py:make_subject
"""

import argparse
import inspect
from typing import Any

from mindgap.cli.output import write, write_json
from mindgap.cli.parser import Parser


def add(parser: argparse.ArgumentParser) -> None:
    """Options; those of the bound itself are read once its name is known."""
    parser.add_argument(
        "name", help="name of a bound; `mindgap bound NAME --help` shows its settings"
    )
    parser.add_argument(
        "settings", nargs=argparse.REMAINDER, help="settings and numbers of the bound"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the bound, its terms and its flags."""
    from mindgap.cli.options import add_fields, add_option, take
    from mindgap.core import find

    cls: Any = find(arguments.name, "bound")
    parser = Parser(prog=f"mindgap bound {cls.name}", description=cls.words().summary)
    parser.add_argument(
        "--subject", metavar="FILE.py:FUNCTION", help="take the numbers from this subject"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_fields(parser, cls)
    numbers = parser.add_argument_group("numbers, where there is no subject")
    for name, (hint, default) in cls.arguments().items():
        optional = None if default is inspect.Parameter.empty else default
        about = "" if optional is None else f"default {optional}"
        add_option(numbers, name, hint, None, about)
    chosen = parser.parse_args(arguments.settings)
    return _show(take(cls, chosen), chosen)


def _show(bound: Any, chosen: argparse.Namespace) -> int:
    from mindgap.cli.target import load_subject
    from mindgap.training.fitted import Fitted

    if chosen.subject:
        found = load_subject(chosen.subject)
        result = bound(found.subject() if isinstance(found, Fitted) else found)
    else:
        given = {name: getattr(chosen, name) for name in bound.arguments()}
        result = bound.evaluate(
            **{name: value for name, value in given.items() if value is not None}
        )
    if chosen.json:
        write_json(result.to_dict())
    else:
        write(_text(bound, result))
    return 0


def _text(bound: Any, result: Any) -> str:
    if result.value is None:
        return f"{result.name}: undefined, {result.reason}"
    flags = [
        "valid" if result.valid else f"NOT valid: {result.reason}",
        "vacuous" if result.vacuous else "non-vacuous",
    ]
    lines = [
        f"{result.name} = {result.value:.10g}   ({', '.join(flags)}; confidence "
        f"{1 - bound.delta:g})"
    ]
    return "\n".join(lines + [f"  {name:12} {value:.10g}" for name, value in result.terms.items()])
