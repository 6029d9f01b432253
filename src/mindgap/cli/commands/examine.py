"""Examine a model of your own: what is wrong, the gap, measures, bounds, report.

  mindgap examine my_model.py:make_subject --report report.html
  mindgap examine a.py:make_subject --compare b.py:make_subject --report page.html

The function returns a mindgap.Subject: a model with its loss and its data.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli import INTERRUPTED, KEPT
from mindgap.cli.output import check_page, check_writable, note, write, write_json

EXAMPLE = "a function that returns a mindgap.Subject, such as my_model.py:make_subject"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("target", metavar="FILE.py:FUNCTION", help=EXAMPLE)
    parser.add_argument(
        "--compare",
        nargs="+",
        metavar="FILE.py:FUNCTION",
        help="other models to show side by side with it, tested for differences",
    )
    parser.add_argument(
        "--store",
        metavar="PATH",
        help="count the models in this store of runs: they were compared on the same test data",
    )
    add_report_options(parser)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every examining command shares."""
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
        help="compute only this measure; may be repeated",
    )
    group.add_argument(
        "--diagnosis",
        action="append",
        metavar="NAME",
        help="look only for this problem; may be repeated",
    )
    group.add_argument(
        "--suspects", metavar="PATH.csv", help="write all samples to look at here, as CSV"
    )
    group.add_argument("--thorough", action="store_true", help="compute expensive measures too")
    group.add_argument(
        "--delta",
        type=float,
        metavar="X",
        default=0.05,
        help="probability with which a bound may fail (0.05)",
    )
    group.add_argument(
        "--hardest",
        type=int,
        metavar="N",
        default=24,
        help="number of hardest samples to show (24)",
    )
    group.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Load, examine, show."""
    from mindgap.cli.target import load_subject

    settings = examine_settings(arguments)
    if arguments.compare is None:
        settings["store"] = arguments.store
        return show(load_subject(arguments.target), arguments, settings)
    return _compare(arguments, settings)


def _compare(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    from mindgap.cli.options import refuse
    from mindgap.cli.target import load_subject
    from mindgap.jobs.compare import compare

    refuse(arguments, "--compare", "suspects", "store")
    targets = [arguments.target, *arguments.compare]
    subjects = [load_subject(target) for target in targets]
    alike = len({_name(subject) for subject in subjects}) < len(set(targets)) == len(targets)
    several = dict(zip(targets, subjects, strict=True)) if alike else subjects
    kept = {name: value for name, value in settings.items() if name != "hardest"}
    _write(compare(several, **kept), arguments)
    return 0


def examine_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options as arguments of ``examine``; refuse bad ones before any work is done."""
    from mindgap.core import InputError, integer

    check_page(arguments.report, (".html", ".json", ".md", ".txt"))
    check_writable(arguments.suspects)
    if not 0 < arguments.delta < 1:
        raise InputError(
            f"--delta must be above 0 and below 1, got {arguments.delta}. 0.05 is usual."
        )
    return {
        "measures": arguments.measure and [_measure(text) for text in arguments.measure],
        "diagnoses": arguments.diagnosis and [_diagnosis(text) for text in arguments.diagnosis],
        "thorough": arguments.thorough,
        "delta": arguments.delta,
        "hardest": integer("--hardest", arguments.hardest, 0),
        "progress": not (arguments.quiet or arguments.json),
    }


def show(subject: Any, arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Examine and write what was asked for."""
    from mindgap.jobs.examine import examine

    report = examine(subject, **settings)
    _write(report, arguments)
    if arguments.suspects:
        path = report.save_suspects(arguments.suspects).resolve()
        note(f"{len(report.suspects):,} samples to look at are at {path}")
    if report.interrupted:
        note(KEPT)
        return INTERRUPTED
    return 0


def _write(report: Any, arguments: argparse.Namespace) -> None:
    if arguments.json:
        write_json(report.to_dict())
    else:
        write(str(report))
    if arguments.report:
        report.save(arguments.report)
        note(f"The report is at {Path(arguments.report).resolve()}")


def _name(subject: Any) -> str:
    return str(subject.name if hasattr(subject, "name") else subject.recipe.name)


def _diagnosis(text: str) -> str:
    from mindgap.core import find

    find(text, "diagnosis")
    return text


def _measure(text: str) -> Any:
    """Return a bare name as it is, for ``examine`` to set up; make a measure that has settings."""
    from mindgap.cli.options import from_text
    from mindgap.core import find

    if ":" in text:
        return from_text(text, "measure", "margin:quantile=0.2")
    find(text, "measure")
    return text
