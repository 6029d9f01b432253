"""Follow a training by its log: gradients, dead units and spikes, layer by layer.

  mindgap monitor run.jsonl --report monitor.html
  mindgap monitor run.jsonl --follow

The log is written by mindgap.Monitor(model, log="run.jsonl") in any training loop. Ctrl-C ends
--follow and shows the verdict.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from mindgap.cli.output import answer, answer_options, check_page, write


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("log", metavar="LOG.jsonl", help="the file that a monitor writes")
    parser.add_argument(
        "--follow", "-f", action="store_true", help="show readings as they come, until Ctrl-C"
    )
    parser.add_argument(
        "--interval",
        type=float,
        metavar="SECONDS",
        default=1.0,
        help="how often --follow looks (1)",
    )
    answer_options(parser, bar=False)


def run(arguments: argparse.Namespace) -> int:
    """Read, judge, show."""
    from mindgap.core import number
    from mindgap.jobs.monitor.job import monitor

    check_page(arguments.report, (".html", ".htm", ".json"))
    number("--interval", arguments.interval, 0.01)
    if arguments.follow:
        try:
            for line in _followed(arguments.log, arguments.interval):
                write(line)
                sys.stdout.flush()  # into a pipe or a file too, while training goes on
        except KeyboardInterrupt:
            write("")
    found = monitor(arguments.log)
    answer(found, arguments)
    return 0


def _followed(path: str, interval: float) -> Iterator[str]:
    """One line of text per reading, for as long as somebody looks."""
    import time

    from mindgap.jobs.monitor.job import monitor

    shown = 0
    while True:
        found: Any = monitor(path)
        if found.steps > shown:
            shown = found.steps
            loss = "—" if found.loss is None else f"{found.loss:.4g}"
            yield f"step {found.steps:>8,}  loss {loss:>10}  {found.verdict.label}: {found.verdict.headline}"
        time.sleep(interval)
