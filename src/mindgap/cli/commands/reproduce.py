"""List every table and figure of the source documents, and run what is missing.

  mindgap reproduce --list
  mindgap reproduce --document expressivity
  mindgap reproduce vbsw-table-1 tbs-table-4 --results my-results --report page.html

Studies without a kept result are run, each into NAME.json of the folder. Trials are kept as they
finish. A killed or interrupted run resumes where it stopped.
"""

import argparse
from pathlib import Path

from mindgap.cli.options import add_executor, executor_of, refuse
from mindgap.cli.output import check_page, note, write, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help="studies to run, or to list with --list (all)"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        dest="listed",
        help="run nothing, only list (the default if nothing is chosen)",
    )
    parser.add_argument(
        "--document",
        metavar="NAME",
        help="only one document: vbsw, pacgen, darc, expressivity, stability, or own (experiments)",
    )
    parser.add_argument("--missing", action="store_true", help="only what has no kept result yet")
    parser.add_argument("--again", action="store_true", help="run studies with a kept result too")
    parser.add_argument(
        "--tiny", action="store_true", help="run versions that take seconds and judge nothing"
    )
    parser.add_argument(
        "--results",
        metavar="DIR",
        help="folder of results files (docs/results if it has any, else mindgap-results)",
    )
    parser.add_argument("--store", metavar="PATH", help="SQLite file of finished trials")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (one per core)")
    add_executor(parser)
    parser.add_argument(
        "--report", "-o", metavar="PATH", help="write the list here: .html or .json"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing, and print the list."""
    from mindgap.jobs.reproduce import reproduce

    check_page(arguments.report, (".html", ".htm", ".json"))
    if arguments.listed:
        refuse(arguments, "--list", "again", "tiny", "store", "workers")
    with executor_of(arguments) as executor:
        found = reproduce(
            arguments.studies or None,
            document=arguments.document,
            missing=arguments.missing,
            again=arguments.again,
            run=not arguments.listed,
            tiny=arguments.tiny,
            results=arguments.results,
            store=arguments.store,
            executor=executor,
            workers=arguments.workers,
            progress=not (arguments.quiet or arguments.json),
        )
    write_json(found.to_dict()) if arguments.json else write(str(found))
    asked = arguments.studies or arguments.document or arguments.missing
    if asked and not (arguments.listed or found.ran or found.failed):
        note("Nothing was run: all of these have a kept result. Pass --again to run them again.")
    if arguments.report:
        note(f"The list is at {found.save(Path(arguments.report)).resolve()}")
    return 1 if found.failed else 0
