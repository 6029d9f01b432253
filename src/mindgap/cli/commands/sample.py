"""Choose where to evaluate an expensive function: Taylor Based Sampling, with derivatives or without.

  mindgap sample mine.py:f --low -1 --high 1 --initial 8 --new 8 -o points.csv --report points.html
  mindgap sample --command './sim {0} {1}' --low 0,0 --high 1,1 --initial 20 --new 20 --rounds 4 \\
      --workers 2 --timeout 60 --retries 1 --session run.jsonl -o points.csv

Evaluate elsewhere, on a queue or a cluster, and bring the values back:

  mindgap sample --session run.jsonl --low 0,0 --high 1,1 --ask 10 -o ask.csv
  mindgap sample --session run.jsonl --tell done.csv
  mindgap sample --session run.jsonl -o points.csv --report points.html

Go on from evaluations that you have (inputs in columns x0, x1 … or as --names says, values in y0,
y1 …):

  mindgap sample --data points.csv --ask 20 -o next.csv

A point that fails is recorded with the reason, and the others go on.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from mindgap.cli.commands.examine import check_writable
from mindgap.cli.commands.sample_options import add as add
from mindgap.cli.commands.sample_options import domain_of, settings_of
from mindgap.cli.options import words
from mindgap.cli.output import note, write, write_json


def run(arguments: argparse.Namespace) -> int:
    """Open, tell, evaluate or ask, write."""
    from mindgap.jobs.sample.csv import Columns, read_known
    from mindgap.jobs.sample.job import Sampling
    from mindgap.jobs.sample.session import open_sampler

    _check(arguments)
    columns = Columns(words(arguments.names), words(arguments.outputs))
    known = None
    if arguments.data:
        points, values, columns = read_known(arguments.data, columns)
        known = (points, values)
    evaluator = _evaluator(arguments)
    sampler = open_sampler(
        evaluator,
        domain_of(arguments),
        known=known,
        differentiable=arguments.torch,
        session=arguments.session,
        settings=settings_of(arguments),
    )
    with sampler:
        columns.named("inputs", sampler.domain.dimension)
        if arguments.tell:
            _tell(sampler, arguments, columns)
        if arguments.ask is not None:
            return _ask(Sampling(sampler, False, columns), arguments)
        return _evaluate(Sampling(sampler, False, columns), evaluator, arguments)


def _ask(done: Any, arguments: argparse.Namespace) -> int:
    from mindgap.jobs.sample.csv import asked_csv

    asked = done.sampler.ask(arguments.ask) if arguments.ask else done.sampler.pending
    table = asked_csv(asked, done.columns, done.sampler.domain.dimension)
    _out(
        table, arguments, {"asked": [{"number": one.number, "x": list(one.point)} for one in asked]}
    )
    if arguments.report:
        _page(done, arguments)
    return 0


def _evaluate(done: Any, evaluator: Any, arguments: argparse.Namespace) -> int:
    """Evaluate, and write what is known whatever goes wrong; without an evaluator write what the session holds."""
    try:
        stopped = evaluator is not None and _fill(done.sampler, evaluator, arguments)
    except BaseException:
        if done.sampler.answers:
            _write(done, arguments)
        raise
    _write(dataclasses.replace(done, interrupted=stopped), arguments)
    return 1 if stopped or (evaluator is not None and not done.sampler.answers) else 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot end well before anything is evaluated."""
    from mindgap.core import InputError

    for path in (arguments.output, arguments.report, arguments.session):
        check_writable(path)
    if arguments.report and Path(arguments.report).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"The page's path must end in .html, got {arguments.report!r}. Rename it.")
    for name, path in (
        ("--data", arguments.data),
        ("--tell", arguments.tell),
        ("--session", arguments.session),
    ):
        if path and arguments.output and Path(path).resolve() == Path(arguments.output).resolve():
            raise InputError(
                f"--output must be another file than {name}, got {path!r} for both. Rename one."
            )
    if arguments.target and arguments.command:
        raise InputError(
            "There must be one thing to evaluate, got a function and --command. Leave one of them "
            "out."
        )
    if arguments.ask is not None and arguments.ask < 0:
        raise InputError(
            f"--ask must be 0 or more, got {arguments.ask}. 0 writes the points still pending."
        )
    if arguments.torch and not arguments.target:
        raise InputError(
            "--torch must come with a function, got none. Name it as FILE.py:FUNCTION."
        )
    if arguments.tell and not arguments.session:
        raise InputError(
            "--tell must come with --session, got none. Name the session that asked for the points."
        )
    given = arguments.command or (arguments.target and not arguments.torch)
    if given and (arguments.ask is not None or arguments.tell):
        raise InputError(
            "--ask and --tell leave the evaluation to you, got something to evaluate. Leave one "
            "of them out."
        )
    export = arguments.session and Path(arguments.session).expanduser().is_file()
    if not (
        arguments.target
        or arguments.command
        or arguments.tell
        or export
        or arguments.ask is not None
    ):
        raise InputError(
            "There must be something to evaluate, got neither FILE.py:FUNCTION nor --command. "
            "Name one, or ask for "
            "points with --ask 10."
        )


def _evaluator(arguments: argparse.Namespace) -> Any:
    from mindgap.cli.target import find_target
    from mindgap.core import InputError
    from mindgap.jobs.sample.evaluate import Command

    if arguments.command is not None:
        return Command(arguments.command, words(arguments.names), arguments.shell)
    if arguments.target is None:
        return None
    found = find_target(arguments.target, "f")
    if not callable(found):
        raise InputError(
            f"{arguments.target} must be a function of a point, got {type(found).__name__}. Name "
            "another."
        )
    return found


def _fill(sampler: Any, evaluator: Any, arguments: argparse.Namespace) -> bool:
    from mindgap.jobs.sample.job import fill

    return fill(
        sampler,
        evaluator,
        16 if arguments.new is None else arguments.new,
        rounds=arguments.rounds,
        differentiable=arguments.torch,
        workers=arguments.workers,
        timeout=arguments.timeout,
        retries=arguments.retries,
        progress=not (arguments.quiet or arguments.json),
    )


def _tell(sampler: Any, arguments: argparse.Namespace, columns: Any) -> None:
    from mindgap.jobs.sample.csv import read_told

    values, failures = read_told(arguments.tell, sampler, columns)
    before = len(sampler.answers)
    sampler.tell_many(values.items())
    for number, reason in failures.items():
        sampler.fail(number, reason)
    lost = len(values) + len(failures) - (len(sampler.answers) - before)
    note(
        f"{len(sampler.answers) - before} values taken, {lost} failures, {len(sampler.pending)} "
        "points pending."
    )


def _write(done: Any, arguments: argparse.Namespace) -> None:
    from mindgap.jobs.sample.csv import points_csv

    queue = arguments.tell and not arguments.output and not arguments.json
    if not queue:  # after --tell nobody waits for a table
        _out(points_csv(done.sampler, done.columns), arguments, done.to_dict())
    (write if arguments.output and not arguments.json else note)(str(done))
    if arguments.report:
        _page(done, arguments)


def _out(table: str, arguments: argparse.Namespace, facts: dict[str, Any]) -> None:
    from mindgap.core import write_whole

    if arguments.json:
        write_json(facts)
    if arguments.output:
        write_whole(arguments.output, table)
        note(f"The points are at {Path(arguments.output).resolve()}")
    elif not arguments.json:
        write(table)


def _page(done: Any, arguments: argparse.Namespace) -> None:
    done.save(
        arguments.report,
        source=arguments.target or arguments.command or arguments.data or arguments.session,
    )
    note(f"The page is at {Path(arguments.report).resolve()}")
