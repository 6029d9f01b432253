"""Find out what improves a recipe, and prove it on fresh seeds.

  mindgap improve my_model.py:make_recipe --budget 30m --report page.html

The recipe is retuned and raced against remedies on parts of its training data. What is left is
trained on fresh seeds, and the test targets are opened once. Without a file, the race is on the digits
that come with the package. Trainings are kept in a store as they finish: a killed or interrupted run
resumes where it stopped.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.options import add_executor, executor_of, words
from mindgap.cli.output import check_page, check_writable, note, write, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="FILE.py:FUNCTION",
        help="a function that returns a mindgap.Recipe with test data (the digits)",
    )
    parser.add_argument("--budget", metavar="TIME", help="time on the clock, such as 30m or 2h")
    parser.add_argument(
        "--trainings",
        type=int,
        metavar="N",
        help="number of trainings (200, or as many as the time allows)",
    )
    parser.add_argument(
        "--remedies",
        metavar="NAME,…",
        help="remedies to choose from (all that fit; diagnosis and experience set the order)",
    )
    parser.add_argument(
        "--holdout",
        type=float,
        default=0.2,
        metavar="X",
        help="share of the training data that a training leaves out, to choose on (0.2)",
    )
    parser.add_argument(
        "--folds",
        type=int,
        default=1,
        metavar="N",
        help="outer folds, for small data: race in each, and test every sample once (1)",
    )
    parser.add_argument(
        "--store",
        metavar="PATH",
        help="SQLite file of finished trainings (a file in the user's cache folder)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="number of worker processes (one per core)"
    )
    add_executor(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the race (0)")
    parser.add_argument(
        "--report", metavar="PATH", help="write a page here (.html), or .json or .md"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Race, prove, write."""
    from mindgap.jobs.improve.job import improve

    check_writable(arguments.store)
    check_page(arguments.report, (".html", ".json", ".md"))
    with executor_of(arguments) as executor:
        found = improve(
            _target(arguments.target),
            budget=arguments.budget,
            trainings=arguments.trainings,
            store=arguments.store,
            executor=executor,
            workers=arguments.workers,
            remedies=words("--remedies", arguments.remedies) or None,
            holdout=arguments.holdout,
            folds=arguments.folds,
            seed=arguments.seed,
            progress=not (arguments.quiet or arguments.json),
        )
    write_json(found.to_dict()) if arguments.json else write(str(found))
    if arguments.report:
        found.save(arguments.report)
        note(f"The page is at {Path(arguments.report).resolve()}")
    return 0


def digits() -> Any:
    """Return the recipe of the digits that come with the package."""
    from mindgap.cli.recipe import default_recipe

    return default_recipe("digits")


def _target(text: str | None) -> Any:
    """Find the function that makes the recipe; workers call it for themselves."""
    if text is None:
        return digits
    from mindgap.cli.target import find_target, load_target
    from mindgap.core import InputError, Recipe

    made = load_target(text, "make_recipe")  # bad input is told before a worker starts
    if not isinstance(made, Recipe):
        raise InputError(
            f"{text} must return a mindgap.Recipe, got {type(made).__name__}. Return one."
        )
    found = find_target(text, "make_recipe")
    return found if callable(found) else made
