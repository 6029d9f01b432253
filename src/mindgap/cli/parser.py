"""The parser of the command line: errors as sentences, one file per command."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys

from mindgap._version import __version__
from mindgap.cli import put
from mindgap.core import InputError, unknown_name

TYPE_CHECKING = False  # as in mindgap/_lazy.py
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

EPILOG = """examples:
  mindgap train --data digits --report report.html
  mindgap examine my_model.py:make_subject --report report.html
  mindgap bound binomial-tail --errors 12 --samples 1000 --delta 0.05
  mindgap explain margin
"""


def _summaries(folder: str) -> dict[str, str]:
    """Every command and the first line of its file, which is read without being imported."""
    found = {}
    for file in sorted(os.listdir(folder)):  # noqa: PTH208  (pathlib costs time)
        if file.endswith(".py") and not file.startswith("_"):
            with open(os.path.join(folder, file), encoding="utf-8") as text:  # noqa: PTH118, PTH123
                found[file[:-3].replace("_", "-")] = text.readline().strip().strip('".')
    return found


COMMANDS = _summaries(os.path.join(os.path.dirname(__file__), "commands"))  # noqa: PTH118, PTH120


# The first names of two commands, which scripts still use. They work, but no help shows them.
ALIASES = {"head": "choose-head", "weights": "weigh"}

# Functions of Python whose command has another name.
IN_PYTHON = {
    "compare": "examine A.py:make_subject --compare B.py:make_subject",
    "diagnose": "examine",
    "fit": "train",
    "sweep": "run",
}


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, at most 110 columns; the width is found without shutil."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns
        except OSError:  # not a terminal
            columns = 100
        super().__init__(prog, max_help_position=30, width=max(40, min(columns, 110) - 2))

    def add_argument(self, action: argparse.Action) -> None:
        """Make room for the longest command: argparse forgets that commands are indented."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += 2


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence and an exit code of 2."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", _Formatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage."""
        choice = re.match(r"argument COMMAND: invalid choice: '([^']*)'", message)
        if choice and choice[1] in IN_PYTHON:
            raise InputError(
                f"COMMAND must be a command, got the function {choice[1]!r} of Python. Write "
                f"'mindgap {IN_PYTHON[choice[1]]}'."
            ) from None
        if choice:
            raise unknown_name("command", choice[1], COMMANDS) from None
        stray = re.match(r"unrecognized arguments: (\S+)", message)
        if stray and stray[1].startswith("--"):
            raise unknown_name("option", stray[1].split("=")[0], self.known()) from None
        raise InputError(f"{message[:1].upper()}{message[1:]}. Run '{self.prog} --help'.") from None

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help also where the encoding lacks a character of it."""
        try:
            put(file or sys.stderr, message)
        except UnicodeEncodeError:
            from mindgap.cli.output import write  # costs time that help seldom needs

            write(message)

    def known(self) -> list[str]:
        """List all long options."""
        return [
            name
            for action in self._actions
            for name in action.option_strings
            if name.startswith("--")
        ]


class Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Builds the parser of the chosen command only."""

    def __call__(self, _: Any, namespace: Any, values: Any, __: str | None = None) -> None:
        module, command, words = command_parser(values[0], values[1:])
        command.parse_args(words, namespace)
        namespace.run = module.run


def command_parser(name: str, words: Sequence[str]) -> tuple[Any, Parser, Sequence[str]]:
    """Make the parser of a command.

    A command whose module has a ``FAMILY`` is about one spec of that family: the spec that the
    words name brings its own options, and its name is taken out of the words.

    Returns:
        The command's module, its parser, and the words that are left to parse.
    """
    name = ALIASES.get(name, name)
    module = importlib.import_module(f"mindgap.cli.commands.{name.replace('-', '_')}")
    parser = Parser(prog=f"mindgap {name}", description=module.__doc__)
    if hasattr(module, "FAMILY"):
        from mindgap.cli.options import add_named_spec

        words = add_named_spec(parser, module.FAMILY, words)
    module.add(parser)
    return module, parser, words


def build() -> Parser:
    """Make the top-level parser."""
    parser = Parser(
        prog="mindgap",
        description="Will it generalize, why not, and what helps?",
        epilog=EPILOG,
        add_help=True,
    )
    parser.add_argument("--version", action="version", version=f"mindgap {__version__}")
    commands = parser.add_subparsers(
        title="commands",
        metavar="COMMAND",
        action=Commands,
        required=True,
        parser_class=dict,  # type: ignore[type-var]  # a command makes its own parser when chosen
    )
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    for alias in ALIASES:
        commands.add_parser(alias, add_help=False)  # without help argparse does not list it
    return parser
