"""List measures, bounds, remedies, studies, data sets and functions.

Plug-ins are included.

  mindgap list --family measure
  mindgap list --family study --names
"""

from __future__ import annotations

import argparse
import itertools

from mindgap.cli.output import write, write_json
from mindgap.core import FAMILIES

TYPE_CHECKING = False  # as in mindgap/_lazy.py
if TYPE_CHECKING:
    from mindgap.jobs.explain import Entry

HEADINGS = {
    **{family: home.rpartition(".")[2].capitalize() for family, home in FAMILIES.items()},
    "dataset": "Data sets",
    "function": "Functions",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--family", choices=HEADINGS, help="list only this family")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--names", action="store_true", help="print bare names, one per line")
    how.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the catalog."""
    from mindgap.jobs.explain import entries

    found = entries(arguments.family)
    if arguments.json:
        write_json([entry.to_dict() for entry in found])
    elif arguments.names:
        write("\n".join(entry.name for entry in found))
    else:
        write(_text(found))
    return 0


def _text(found: list[Entry]) -> str:
    names = max((len(entry.name) for entry in found), default=0)
    papers = max((len(_paper(entry)) for entry in found), default=0)
    lines: list[str] = []
    for family, members in itertools.groupby(found, key=lambda entry: entry.family):
        lines += [HEADINGS[family]]
        for topic, group in itertools.groupby(members, key=lambda entry: entry.topic):
            indent = "    " if topic else "  "
            lines += [f"  {topic.replace('_', ' ')}"] if topic else []
            lines += [
                f"{indent}{entry.name:{names}}  {_paper(entry):{papers}}  {entry.words.summary}"
                for entry in group
            ]
        lines += [""]
    text = "\n".join([*lines, "`mindgap explain NAME` tells more about one of them."])
    return text.replace("``", "")


def _paper(entry: Entry) -> str:
    """The paper that the entry is from; `mindgap explain` names the others."""
    return entry.citations[0] if entry.cites else ""
