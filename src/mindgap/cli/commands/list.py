"""List every measure, bound, remedy and study, those of plug-ins included."""

import argparse
from typing import Any

from mindgap.cli.output import write, write_json

PLURALS = {"measure": "measures", "bound": "bounds", "remedy": "remedies", "study": "studies"}


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("--family", choices=PLURALS, help="only this family")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the catalog."""
    from mindgap.core import catalog

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "family": cls.family,
            "methods": list(cls.method),
            "summary": cls.words().summary,
            "source": f"{cls.__module__}.{cls.__qualname__}",
            "cites": list(cls.cites),
        }
        for name, cls in catalog(arguments.family).items()
    ]
    if arguments.json:
        write_json(rows)
        return 0
    width = max((len(row["name"]) for row in rows), default=0)
    for family in PLURALS:
        chosen = [row for row in rows if row["family"] == family]
        if chosen:
            write("\n".join([PLURALS[family], *(_line(row, width) for row in chosen)]))
            write("")
    write("mindgap explain NAME tells more.")
    return 0


def _line(row: dict[str, Any], width: int) -> str:
    return f"  {row['name']:{width}}  {','.join(row['methods']):6}  {row['summary']}"
