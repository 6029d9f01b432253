"""Turn a saved report or the results of a study into a page.

mindgap report docs/results/vbsw-table-1.json -o page.html

The ending of the output says what is written: .html, .md or .txt.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from mindgap.cli.output import check_writable, note


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "source",
        metavar="RESULTS.json",
        help="a file that `examine --report x.json` or `run --results x.json` wrote",
    )
    parser.add_argument(
        "--output",
        "-o",
        metavar="PATH",
        default="mindgap-report.html",
        help="write the page here (mindgap-report.html)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read, recognize, write."""
    check_writable(arguments.output)
    data = _read(Path(arguments.source))
    _write(data, Path(arguments.output))
    note(f"The page is at {Path(arguments.output).resolve()}")
    return 0


def _read(path: Path) -> dict[str, Any]:
    from mindgap.core import InputError

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"The results must be an existing file, got {str(path)!r}. Check the path."
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"The results must be a JSON file, got {str(path)!r} ({error}). Write it again."
        ) from error
    if not isinstance(data, dict) or not ({"cards", "study"} & set(data)):
        raise InputError(
            "The results must come from `mindgap examine` or `mindgap run`, got other JSON in "
            f"{str(path)!r}. "
            "Pass a file that they wrote."
        )
    return data


def _write(data: dict[str, Any], path: Path) -> None:
    from mindgap.core import write_whole
    from mindgap.report import Report, study_page
    from mindgap.runs import results_page

    if "cards" in data:
        Report.from_dict(data).save(path)
    elif path.suffix in (".md", ".txt"):
        write_whole(path, results_page(data))
    else:
        study_page(data, path)
