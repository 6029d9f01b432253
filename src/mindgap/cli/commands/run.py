"""Run a study. Finished trials are kept in a store; a killed or interrupted run goes on where it was.

mindgap run batch-size-gap --seeds 10 --results results.json
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.commands.examine import check_writable
from mindgap.cli.output import note, write, write_json
from mindgap.cli.parser import Parser


def add(parser: argparse.ArgumentParser) -> None:
    """Options; those of the study itself are read once its name is known."""
    parser.add_argument(
        "name",
        metavar="STUDY",
        help="name of a study; `mindgap run STUDY --help` shows its settings",
    )
    parser.add_argument(
        "settings", nargs=argparse.REMAINDER, help="settings of the study and of the run"
    )


def run(arguments: argparse.Namespace) -> int:
    """Sweep the trials, print the table, keep the results."""
    from mindgap.cli.options import add_fields, take
    from mindgap.core import find

    cls: Any = find(arguments.name, "study")
    parser = Parser(prog=f"mindgap run {cls.name}", description=cls.words().summary)
    _add_run_options(parser)
    add_fields(parser, cls)
    chosen = parser.parse_args(arguments.settings)
    check_writable(chosen.results)
    study = take(cls, chosen)
    return _sweep(study.tiny() if chosen.tiny else study, chosen)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument(
        "--tiny", action="store_true", help="a version of the study that takes seconds"
    )
    group.add_argument(
        "--store",
        metavar="PATH",
        help="SQLite file of finished trials (in the user's cache folder)",
    )
    group.add_argument("--workers", type=int, help="number of processes (one a core)")
    group.add_argument("--limit", type=int, help="run at most so many trials now")
    group.add_argument("--results", "-o", metavar="PATH", help="write the results here as JSON")
    group.add_argument("--json", action="store_true", help="print the table as JSON")
    group.add_argument("--quiet", "-q", action="store_true", help="no progress bar")


def _sweep(study: Any, chosen: argparse.Namespace) -> int:
    from mindgap.runs import save_results, sweep

    swept = sweep(
        study,
        store=chosen.store,
        workers=chosen.workers,
        limit=chosen.limit,
        progress=not (chosen.quiet or chosen.json),
    )
    if swept.complete:
        write_json(swept.table.to_dict()) if chosen.json else write(str(swept.table))
    if swept.complete and chosen.results:
        save_results(swept, chosen.results)
        note(f"The results are at {Path(chosen.results).resolve()}")
    for failure in swept.failures[:5]:
        note(f"A trial failed: {failure[1].error}")
    if not swept.complete:
        note(
            f"{len(swept.records)} of {len(swept.trials)} trials are done and kept; run the "
            "command again to go on."
        )
    return 0 if swept.complete else 1
