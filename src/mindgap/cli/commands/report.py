"""Turn a saved report or the results of a study into a page.

  mindgap report docs/results/vbsw-table-1.json -o page.html

The ending of the output says what is written: .html, .md or .txt.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.output import check_page, note


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "source",
        metavar="RESULTS.json",
        help="a file that `examine --report x.json`, `improve --report x.json` or `run --results x.json` wrote",
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
    from mindgap.core import expanded

    check_page(arguments.output, (".html", ".md", ".txt"))
    data = _read(expanded(arguments.source))
    _draw(data, Path(arguments.source), Path(arguments.output))
    note(f"The page is at {Path(arguments.output).resolve()}")
    return 0


def _read(path: Path) -> dict[str, Any]:
    from mindgap.core import InputError, parsed

    try:
        data = parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"The results must be an existing file, got {str(path)!r}. Check the path."
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"The results must be a JSON file, got {str(path)!r} ({error}). Write it again."
        ) from error
    if not isinstance(data, dict) or not (
        {"cards", "study"} & set(data) or data.get("kind") in ("comparison", "improved")
    ):
        raise InputError(
            "The results must come from `mindgap examine`, `improve` or `run`, got other JSON in "
            f"{str(path)!r}. "
            "Pass a file that they wrote."
        )
    return data


def _draw(data: dict[str, Any], source: Path, path: Path) -> None:
    from mindgap.core import InputError, MindgapError

    try:
        _write(data, path)
    except MindgapError:
        raise
    except Exception as error:  # its types are right, so it holds a number that none can be
        raise InputError(
            f"The results must be as mindgap wrote them, got damaged data in {str(source)!r} "
            f"({type(error).__name__}: {error!s:.200}). Write the file again."
        ) from error


def _write(data: dict[str, Any], path: Path) -> None:
    from mindgap.core import unworded, write_whole
    from mindgap.report import Report, study_page
    from mindgap.report.improved import Improved
    from mindgap.report.pages.compare import Comparison
    from mindgap.runs import results_page
    from mindgap.runs.results import checked_results

    if data.get("kind") == "improved":
        Improved.from_dict(data).save(path)
    elif data.get("kind") == "comparison":
        Comparison.from_dict(data).save(path)
    elif "cards" in data:
        Report.from_dict(data).save(path)
    elif path.suffix in (".md", ".txt"):
        write_whole(path, results_page(unworded(data)))
    else:
        study_page(checked_results(unworded(data)), path)
