"""Optional packages: each is used in its own folder only, and its extra installs it.

They are loaded by ``require(...)``, which a linter of imports cannot see, so the source is read.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "mindgap"
FILES = sorted(SOURCE.rglob("*.py"))
FOLDERS = {
    "plotly": {"report"},
    "latex2mathml": {"report"},
    "optuna": {"jobs", "runs"},
    "dask": {"runs"},
    "distributed": {"runs"},
    "ray": {"runs"},
    "lightning": {"integrations"},
    "skorch": {"integrations"},
    "transformers": {"integrations", "data"},
    "PIL": {"data"},
}
LOADERS = {"require": 1, "base_class": 2}  # and the place of the argument that names the extra


class Use(NamedTuple):
    """A package that some code imports, and the extra that it names, if it names one."""

    package: str
    extra: str = ""


@functools.cache  # three tests read all files
def uses(text: str) -> tuple[Use, ...]:
    return tuple(_uses(text))


def _uses(text: str) -> Iterator[Use]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names):
                yield from (Use(alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield Use(module)
            case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name), args=arguments):
                words = [getattr(word, "value", "") for word in arguments]
                if name in LOADERS and isinstance(words[0], str) and words[0]:
                    yield Use(words[0], words[LOADERS[name]])
                elif name == "import_module" and isinstance(words[0], str):
                    yield Use(words[0])


def strangers(folder: str, text: str) -> list[str]:
    """Packages that code in a folder must not use."""
    tops = [use.package.partition(".")[0] for use in uses(text)]
    return [top for top in tops if top in FOLDERS and folder not in FOLDERS[top]]


def folder_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import optuna", ["optuna"]),
        ("def f():\n    from plotly.offline import get_plotlyjs", ["plotly"]),
        ("require('ray', 'ray')", ["ray"]),
        ("errors.require('distributed.client', 'dask')", ["distributed"]),
        ("Base = base_class('skorch.callbacks', 'Callback', 'skorch')", ["skorch"]),
        ("importlib.import_module('dask')", ["dask"]),
        ("import torch\nfrom mindgap.core import require\nrequire(name, extra)", []),
    ],
)
def test_the_reader_sees_every_way_to_import(text: str, found: list[str]) -> None:
    assert strangers("ops", text) == found


def test_every_package_stays_in_its_folder() -> None:
    found = {
        str(path.relative_to(SOURCE)): strangers(folder_of(path), path.read_text())
        for path in FILES
    }
    assert not {path: packages for path, packages in found.items() if packages}


def test_the_packages_are_used_at_all() -> None:
    used = {use.package.partition(".")[0] for path in FILES for use in uses(path.read_text())}
    assert {"optuna", "distributed", "ray", "lightning", "skorch"} <= used


def extras() -> dict[str, set[str]]:
    """The packages of every extra of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        extra: {re.match(r"[\w.-]+", line)[0].lower() for line in lines}
        for extra, lines in project["optional-dependencies"].items()
    }


def test_every_require_names_an_extra_that_installs_the_package() -> None:
    distributions, known = metadata.packages_distributions(), extras()
    asked = {use for path in FILES for use in uses(path.read_text()) if use.extra}
    assert len(asked) > 6
    for package, extra in asked:
        top = package.partition(".")[0]
        names = {name.lower().replace("_", "-") for name in distributions.get(top, [top])}
        assert names & known[extra], f"require({package!r}, {extra!r})"
