"""Parts of hand-written pages that are taken from the package: options, names, data sets, benchmarks."""

import contextlib
import functools
import importlib
import inspect
import json
import os
import urllib.parse
from pathlib import Path

from markup import fence, join, table

import mindgap
from mindgap.cli import parser as cli
from mindgap.data.catalog import loaders
from mindgap.data.download import Remote

WIDTH = "96"


def command_line():
    """The help of the program and of every command, as it prints it itself."""
    with _columns(WIDTH):
        own = fence(cli.build().format_help())
        return join(own, *(f"## {name}\n\n{fence(_help(name))}" for name in cli.COMMANDS))


def _help(name):
    module = importlib.import_module(f"mindgap.cli.commands.{name}")
    command = cli.Parser(prog=f"mindgap {name}", description=module.__doc__)
    module.add(command)
    return command.format_help()


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


def public_names():
    """Everything that ``import mindgap`` offers, by autodoc."""
    found = {name: getattr(mindgap, name) for name in mindgap.__all__ if not name.startswith("_")}
    functions = [name for name, value in found.items() if inspect.isfunction(value)]
    classes = [name for name, value in found.items() if inspect.isclass(value)]
    rooms = [
        f"- `mindgap.{name}`: {_summary(value)}"
        for name, value in found.items()
        if inspect.ismodule(value)
    ]
    return join(
        "## Functions",
        fence("\n".join(f".. autofunction:: mindgap.{name}" for name in functions), "{eval-rst}"),
        "## Classes",
        fence(
            "\n".join(f".. autoclass:: mindgap.{name}\n   :members:\n" for name in classes),
            "{eval-rst}",
        ),
        "## Rooms",
        "\n".join(rooms),
    )


def data_sets():
    """Every data set that ``mindgap.data.load`` knows: what it is, where it comes from, whom to cite."""
    names = {}
    for name, loader in loaders().items():
        names.setdefault(
            loader.func if isinstance(loader, functools.partial) else loader, []
        ).append(f"`{name}`")
    return join(*(f"{', '.join(called)}\n: {_described(made)}" for made, called in names.items()))


def _described(function):
    cited = _cite(function)
    return f"{_summary(function)} {_origin(function)}" + (
        f" *{cited.rstrip('.')}.*" if cited else ""
    )


def _origin(function):
    constants = vars(inspect.getmodule(function)).values()
    addresses = [value.url if isinstance(value, Remote) else value for value in constants]
    hosts = {
        urllib.parse.urlsplit(text).hostname
        for text in addresses
        if str(text).startswith("https://")
    }
    if hosts:
        return f"Downloaded from {', '.join(sorted(hosts))}."
    return (
        "Comes with the package." if hasattr(inspect.getmodule(function), "FILE") else "Generated."
    )


def _cite(function):
    return getattr(inspect.getmodule(function), "SOURCE", "")


def _summary(thing):
    return " ".join(inspect.getdoc(thing).split("\n\n")[0].split())


def benchmarks(folder):
    """A table for every saved benchmark, whatever its keys."""
    files = sorted(Path(folder).glob("*.json")) if Path(folder).is_dir() else []
    if not files:
        return "There are no saved figures in this copy yet."
    return join(
        *(_benchmark(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in files)
    )


def _benchmark(name, data):
    return join(
        f"## {name.replace('_', ' ').replace('-', ' ').capitalize()}", *_shown(data)
    ).rstrip()


def _shown(data):
    """Lists of mappings as tables, plain values as pairs, mappings inside likewise."""
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
