"""Examine a model of your own: FILE.py:FUNCTION names a function that returns a mindgap.Subject."""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.output import note, write, write_json

EXAMPLE = "a function that returns a mindgap.Subject, as path/to/file.py:make_subject"


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("target", metavar="FILE.py:FUNCTION", help=EXAMPLE)
    add_report_options(parser)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """The options that every examining command shares."""
    group = parser.add_argument_group("report")
    group.add_argument(
        "--report",
        "--html",
        "-o",
        metavar="PATH",
        help="write the report here: .html, .json, .md or .txt",
    )
    group.add_argument(
        "--json", action="store_true", help="print the report as JSON instead of a table"
    )
    group.add_argument(
        "--measure",
        action="append",
        metavar="NAME[:FIELD=VALUE,…]",
        help="only this measure; may be given again",
    )
    group.add_argument(
        "--thorough", action="store_true", help="also take the measures that are expensive"
    )
    group.add_argument(
        "--delta", type=float, default=0.05, help="probability with which a bound may fail (0.05)"
    )
    group.add_argument(
        "--hardest", type=int, default=24, help="number of hardest samples to show (24)"
    )
    group.add_argument("--quiet", "-q", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Load, examine, show."""
    from mindgap.cli.target import load_subject

    check_writable(arguments.report)
    return show(load_subject(arguments.target), arguments)


def show(subject: Any, arguments: argparse.Namespace) -> int:
    """Examine and write what was asked for."""
    from mindgap.jobs.examine import examine

    report = examine(
        subject,
        measures=None
        if arguments.measure is None
        else [_measure(text) for text in arguments.measure],
        thorough=arguments.thorough,
        delta=arguments.delta,
        hardest=arguments.hardest,
        progress=not (arguments.quiet or arguments.json),
    )
    if arguments.json:
        write_json(report.to_dict())
    else:
        write(str(report))
    if arguments.report:
        report.save(arguments.report)
        note(f"The report is at {Path(arguments.report).resolve()}")
    return 0


def _measure(text: str) -> Any:
    """A name stands for the measure as ``examine`` sets it up; with settings it is made here."""
    from mindgap.cli.options import from_text

    return from_text(text, "measure", "margin:quantile=0.2") if ":" in text else text


def check_writable(path: str | None) -> None:
    """Refuse a path that cannot be written before the work is done, not after."""
    from mindgap.core import InputError

    if path is None:
        return
    folder = Path(path).resolve().parent
    if Path(path).is_dir() or not folder.is_dir():
        what = (
            "a folder"
            if Path(path).is_dir()
            else f"a path in a folder that does not exist ({folder})"
        )
        raise InputError(
            f"The report must go to a file that can be written, got {what}: {path!r}. Choose "
            "another path."
        )
    try:
        with (folder / f".{Path(path).name}.probe").open("w"):
            pass
        (folder / f".{Path(path).name}.probe").unlink()
    except OSError as error:
        raise InputError(
            f"The report must go to a writable path, got {path!r} ({error.strerror}). Choose "
            "another path."
        ) from error
