"""Explain one name: formula, reading, assumptions, settings and references.

  mindgap explain margin
  mindgap explain local-variance --json

`mindgap list` shows all names.
"""

import argparse

from mindgap.cli.output import write, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", metavar="NAME", help="a name that `mindgap list` shows")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print what is known about the name."""
    from mindgap.jobs.explain import explain

    entry = explain(arguments.name)
    if arguments.json:
        write_json(entry.to_dict())
    else:
        write(str(entry))
    return 0
