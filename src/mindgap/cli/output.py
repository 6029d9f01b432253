"""Writing to the terminal and to files, and refusing paths before the work is done."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mindgap.cli import put
from mindgap.core import InputError, write_whole
from mindgap.core.files import check_writable as check_path


def write(text: str) -> None:
    """Write a block of text to stdout; characters that its encoding lacks are escaped."""
    whole, encoding = text.rstrip("\n") + "\n", sys.stdout.encoding or "utf-8"
    try:
        whole.encode(encoding)
    except UnicodeEncodeError:
        # The work is done and may have taken hours, so it is shown as well as it can be.
        whole = whole.encode(encoding, "backslashreplace").decode(encoding)
        note(
            f"The output must be written in an encoding that has all its characters, got "
            f"{encoding}: some are escaped. Set PYTHONIOENCODING=utf-8."
        )
    put(sys.stdout, whole)


def write_json(data: Any) -> None:
    """Write strict JSON to stdout."""
    write(json.dumps(data, indent=2, allow_nan=False))


def note(text: str) -> None:
    """Write a remark to stderr, so that stdout holds the output alone."""
    sys.stderr.write(text.rstrip("\n") + "\n")


def answer_options(
    parser: argparse.ArgumentParser, *, samples: bool = False, lines: str = "", bar: bool = True
) -> None:
    """Declare where a command writes what it found, and what it prints.

    Args:
        parser: Of the command.
        samples: Whether the answer has lines for samples, to be written as CSV.
        lines: What else it has lines for.
        bar: Whether the command shows a progress bar.
    """
    lines = "sample" if samples else lines
    kinds = f".html, .json or .csv (one line per {lines})" if lines else ".html or .json"
    parser.add_argument(
        "--report", "--html", "-o", metavar="PATH", help=f"write the result here: {kinds}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    if bar:
        parser.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def answer(found: Any, arguments: argparse.Namespace, *more: str | None) -> None:
    """Print what a job found, and write it to the files that are asked for.

    Args:
        found: The answer of the job.
        arguments: With the options of :func:`answer_options`.
        more: Further files.
    """
    write_json(found.to_dict()) if arguments.json else write(found.text())
    for path in filter(None, (arguments.report, *more)):
        note(f"The result is at {found.save(path).resolve()}")


def save_weights(model: Any, path: str, what: str) -> None:
    """Write a state dict whole or not at all, and say where it is."""
    import torch

    write_whole(path, lambda file: torch.save(model.state_dict(), file))
    note(f"{what} at {Path(path).resolve()}")


def check_page(path: str | None, endings: Sequence[str] = (".html", ".htm")) -> None:
    """Refuse the path of a page that cannot be written or whose ending says no known format."""
    check_writable(path)
    if path is not None and Path(path).suffix.lower() not in endings:
        raise InputError(f"The path must end in {' or '.join(endings)}, got {path!r}. Rename it.")


def check_writable(*paths: str | None) -> None:
    """Refuse paths that cannot be written before the work is done, not after."""
    for path in paths:
        if path is not None:
            check_path(path)
