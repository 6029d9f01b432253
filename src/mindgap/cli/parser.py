"""The parser of the command line: errors as sentences, one file per command."""

from __future__ import annotations

import argparse
import importlib
import os
import re

from mindgap._version import __version__
from mindgap.core import InputError, unknown_name

TYPE_CHECKING = False  # as in mindgap/__init__.py
if TYPE_CHECKING:
    from typing import Any, NoReturn

COMMANDS = {
    "examine": "examine a model: gap, measures, bounds, hardest samples, a report",
    "train": "train on a data set, then examine",
    "list": "list every measure, bound, remedy and study",
    "explain": "formula, reading, assumptions and reference of one of them",
    "bound": "evaluate a bound on numbers or on a model",
    "certify": "train a random model and certify its error on unseen data (PAC-Bayes)",
    "head": "train the last layer again, weighted by local variance, with controls",
    "weights": "weigh samples by the variance of the labels around them",
    "sample": "choose where to evaluate an expensive function next, and evaluate it",
    "run": "run a study; a killed run goes on where it was",
    "report": "turn saved results into a page",
    "doctor": "check the installation",
}
EPILOG = """examples:
  mindgap train --data digits --report report.html
  mindgap examine my_model.py:make_subject --html report.html
  mindgap bound binomial-tail --errors 12 --samples 1000 --delta 0.05
  mindgap explain margin
"""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, at most 110 columns, found without importing shutil and its compressors."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns
        except OSError:  # not a terminal
            columns = 100
        super().__init__(prog, max_help_position=30, width=max(40, min(columns, 110) - 2))


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence and an exit code of 2."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", Formatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage."""
        choice = re.match(r"argument COMMAND: invalid choice: '([^']*)'", message)
        if choice:
            raise unknown_name("command", choice[1], COMMANDS) from None
        stray = re.match(r"unrecognized arguments: (\S+)", message)
        if stray and stray[1].startswith("--"):
            raise unknown_name("option", stray[1].split("=")[0], self.known()) from None
        raise InputError(f"{message[:1].upper()}{message[1:]}. Run '{self.prog} --help'.") from None

    def known(self) -> list[str]:
        """All long options."""
        return [
            name
            for action in self._actions
            for name in action.option_strings
            if name.startswith("--")
        ]


class Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Builds the parser of the chosen command only."""

    def __call__(self, parser: Any, namespace: Any, values: Any, _: str | None = None) -> None:
        name = values[0]
        module = importlib.import_module(f"mindgap.cli.commands.{name}")
        command = Parser(prog=f"{parser.prog} {name}", description=module.__doc__)
        module.add(command)
        command.parse_args(values[1:], namespace)
        namespace.run = module.run


def build() -> Parser:
    """The top-level parser."""
    parser = Parser(
        prog="mindgap",
        description="Will it generalize, why not, and what helps?",
        epilog=EPILOG,
        add_help=True,
    )
    parser.add_argument("--version", action="version", version=f"mindgap {__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", action=Commands, required=True
    )
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser
