"""Evaluate an expensive function where it changes most.

This is Taylor Based Sampling, with derivatives or without:

  mindgap sample mine.py:f --low -1 --high 1 --initial 8 --new 8 -o points.csv --report points.html
  mindgap sample --command './sim {0} {1}' --low 0,0 --high 1,1 --initial 20 --new 20 --rounds 4 \\
      --workers 2 --timeout 60 --retries 1 --session run.jsonl -o points.csv

Evaluate elsewhere, on a queue or a cluster, and bring the values back:

  mindgap sample --session run.jsonl --low 0,0 --high 1,1 --ask 10 -o ask.csv
  mindgap sample --session run.jsonl --tell done.csv
  mindgap sample --session run.jsonl -o points.csv --report points.html

Start from evaluations that you have, with inputs in columns x0, x1 … and values in y0, y1 …, or as
--names and --outputs say:

  mindgap sample --data points.csv --ask 20 -o next.csv

A point that fails is recorded with the reason, and the others continue.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli import INTERRUPTED
from mindgap.cli.options import executor_of, refuse, words
from mindgap.cli.output import check_page, check_writable, note, write, write_json
from mindgap.cli.sample_options import add as add, domain_of, settings_of


def run(arguments: argparse.Namespace) -> int:
    """Parse, sample, and write what is known, also if the evaluation ends with an error."""
    from mindgap.jobs.sample.csv import Columns
    from mindgap.jobs.sample.job import sample

    _check(arguments)
    evaluator = _evaluator(arguments)
    with executor_of(arguments) as executor:
        done = sample(
            evaluator,
            domain_of(arguments),
            new=16 if arguments.new is None else arguments.new,
            rounds=arguments.rounds,
            known=arguments.data,
            tell=arguments.tell,
            ask=arguments.ask,
            differentiable=arguments.torch,
            session=arguments.session,
            columns=Columns(
                words("--names", arguments.names), words("--outputs", arguments.outputs)
            ),
            executor=executor,
            workers=arguments.workers,
            timeout=arguments.timeout,
            retries=arguments.retries,
            compare=arguments.compare,
            progress=not (arguments.quiet or arguments.json),
            on_error=lambda done: _write(done, arguments) if done.sampler.answers else None,
            **settings_of(arguments),
        )
    if arguments.tell:
        pending = len(done.sampler.pending)
        note(f"{done.taken} values taken, {done.lost} failures, {pending} points pending.")
    _write(done, arguments)
    nothing = evaluator is not None and done.asked is None and not done.sampler.answers
    return INTERRUPTED if done.interrupted else int(nothing)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot end well before anything is evaluated."""
    from mindgap.core import InputError
    from mindgap.core.files import expanded

    check_writable(arguments.output, arguments.session)
    check_page(arguments.report)
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
    if arguments.command is None:
        refuse(arguments, "a function", "shell")
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
    export = arguments.session and expanded(arguments.session).is_file()
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
        return Command(arguments.command, words("--names", arguments.names), arguments.shell)
    if arguments.target is None:
        return None
    found = find_target(arguments.target, "f")
    if not callable(found):
        raise InputError(
            f"{arguments.target} must be a function of a point, got {type(found).__name__}. Name "
            "another."
        )
    return found


def _write(done: Any, arguments: argparse.Namespace) -> None:
    told_only = arguments.tell and done.asked is None
    if arguments.output or arguments.json or not told_only:  # after --tell nobody wants the table
        _out(done.csv(), arguments, done.to_dict())
    if done.asked is None:
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
