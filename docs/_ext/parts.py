"""Parts of hand-written pages that come from elsewhere: help, benchmarks, what was reproduced."""

import contextlib
import json
import os
from pathlib import Path

from markup import fence, join, table

from mindgap.cli import parser as cli
from mindgap.jobs.reproduce import reproduce
from mindgap.report.pages.reproduce import STATES, heading

WIDTH = "96"
LECTURES = ("darc", "expressivity", "stability")  # documents with slides


def command_line():
    """Show the help of the program and of every command, as it is printed."""
    with _columns(WIDTH):
        own = fence(cli.build().format_help())
        helps = {name: cli.command_parser(name, [])[1].format_help() for name in cli.COMMANDS}
        return join(own, *(f"## {name}\n\n{fence(text)}" for name, text in helps.items()))


@contextlib.contextmanager
def _columns(width):
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = width
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def benchmarks(folder):
    """Write a table for every saved benchmark, whatever its keys."""
    files = sorted(Path(folder).glob("*.json")) if Path(folder).is_dir() else []
    if not files:
        return "This copy has no saved benchmarks yet; `make bench` runs them."
    return join(
        *(_benchmark(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in files)
    )


def reproduction(folder):
    """List what the documents publish, by document, with links to studies and results."""
    found = reproduce(results=folder, run=False)
    columns = ("table, figure or claim", "study", "state", "CPU time", "date", "verdict")
    tables = [
        f"## {heading(document)}\n\n{table(columns, map(_reproduced, rows))}"
        for document, rows in found.by_document()
    ]
    states = "\n".join(f"- *{state}*: {words}" for state, words in STATES.items())
    counts = [one for one in found.verdict.sentences if "holds results" not in one]
    return join(" ".join([found.verdict.headline, *counts]), *tables, "## States", states)


def lectures(folder):
    """List what the lectures show, with the command that shows it, what it cost and what happened."""
    found = reproduce(results=folder, run=False)
    columns = ("the slides show", "command", "CPU time", "what happens here")
    tables = [
        f"### {heading(document)}\n\n{table(columns, [_shown_by(row) for row in rows if row.path])}"
        for document, rows in found.by_document()
        if document.name in LECTURES
    ]
    return join(*tables)


def _shown_by(row):
    cost = row.cells[3].replace(" ", "\u00a0")
    verdict = row.verdict or "results"
    link = f"[{verdict}](../catalog/results/{row.study}.md)"
    return f"{row.item}: {row.about}", f"`mindgap run {row.study}`", cost, link


def _reproduced(row):
    item, study, state, cost, date, verdict = row.cells
    if row.study:
        study = f"[{row.study}](catalog/study/{row.study}.md)"
    if row.verdict:
        verdict = f"[{row.verdict}](catalog/results/{row.study}.md)"
    cost, date = cost.replace(" ", "\u00a0"), date.replace("-", "\u2011")  # on one line each
    return f"{item}: {row.about.rstrip('.')}", study, state, cost, date, verdict


def _benchmark(name, data):
    return join(
        f"## {name.replace('_', ' ').replace('-', ' ').capitalize()}", *_shown(data)
    ).rstrip()


def _shown(data):
    """Show lists of mappings as tables, plain values as pairs, and nested mappings likewise."""
    if isinstance(data, list):
        rows = [row if isinstance(row, dict) else {"value": row} for row in data]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        yield table(
            [_words(key) for key in columns],
            [[_value(row.get(key, "—")) for key in columns] for row in rows],
        )
        return
    plain = {key: value for key, value in data.items() if not isinstance(value, dict | list)}
    if plain:
        yield "\n".join(f"- {_words(key)}: {_value(value)}" for key, value in plain.items())
    for key, value in data.items():
        if key not in plain:
            yield f"**{_words(key).capitalize()}**"
            yield from _shown(value)


def _words(key):
    return str(key).replace("_", " ")


def _value(value):
    if isinstance(value, dict | list):
        return f"`{json.dumps(value)}`"
    return f"{value:.4g}" if isinstance(value, float) else value
