"""Run a study, or resume it: finished trials are kept.

  mindgap run batch-size-gap --seeds 10 --results results.json --report page.html

Trials are kept in a store as they finish. A killed or interrupted run resumes where it stopped.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.options import add_executor, executor_of, take
from mindgap.cli.output import check_page, check_writable, note, write, write_json

FAMILY = "study"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the run; the study brings its own."""
    group = parser.add_argument_group("run")
    group.add_argument(
        "--tiny", action="store_true", help="run a version of the study that takes seconds"
    )
    group.add_argument(
        "--store",
        metavar="PATH",
        help="SQLite file of finished trials (a file in the user's cache folder)",
    )
    group.add_argument(
        "--workers", type=int, metavar="N", help="number of worker processes (one per core)"
    )
    add_executor(group)
    group.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="kill a trial after so many seconds; it counts as failed (no limit)",
    )
    group.add_argument("--limit", type=int, metavar="N", help="run at most N trials now")
    group.add_argument("--results", "-o", metavar="PATH", help="write the results here as JSON")
    group.add_argument(
        "--report", metavar="PATH.html", help="write a page with the table and all charts"
    )
    group.add_argument("--json", action="store_true", help="print the table as JSON")
    group.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Sweep the trials, print the table, keep the results."""
    check_writable(arguments.results)
    check_page(arguments.report)
    study: Any = take(arguments.spec, arguments)
    return _sweep(study.tiny() if arguments.tiny else study, arguments)


def _sweep(study: Any, arguments: argparse.Namespace) -> int:
    from mindgap.report import study_page
    from mindgap.runs import save_results, sweep
    from mindgap.runs.results import as_results

    with executor_of(arguments) as executor:
        swept = sweep(
            study,
            store=arguments.store,
            executor=executor,
            workers=arguments.workers,
            limit=arguments.limit,
            timeout=arguments.timeout,
            progress=not (arguments.quiet or arguments.json),
        )
    if swept.complete:
        write_json(swept.table.to_dict()) if arguments.json else write(str(swept.table))
    if swept.complete and arguments.results:
        save_results(swept, arguments.results)
        note(f"The results are at {Path(arguments.results).resolve()}")
    if swept.complete and arguments.report:
        study_page(as_results(swept), arguments.report)
        note(f"The page is at {Path(arguments.report).resolve()}")
    for failure in swept.failures[:5]:
        note(f"A trial failed: {failure[1].error}")
    if not swept.complete:
        note(
            f"{len(swept.records)} of {len(swept.trials)} trials are done and kept. Run the "
            "command again to resume."
        )
    return 0 if swept.complete else 1
