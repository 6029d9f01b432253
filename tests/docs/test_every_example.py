"""Every public function, class and command has an example, and every example runs somewhere."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mindgap.cli.parser import COMMANDS, build

ROOT = Path(__file__).parents[2]
# Pages whose blocks a test runs: test_readme, test_users, test_examples and those named after them.
RUN = ("README.md", "docs/contributing.md", "docs/improve.md", "docs/integrations.md", "docs/users")
LINE = re.compile(r"^\s*(?:>>>|\.\.\.) (.*)", re.M)
# What needs a cluster or files of others is run by a test of its own, which is skipped without them.
ELSEWHERE = ("tests/data", "tests/runs/test_clusters.py")


def sources(*places: str, ending: str) -> str:
    paths = [ROOT / place for place in places]
    files = [found for path in paths for found in (path.rglob(ending) if path.is_dir() else [path])]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def blocks(language: str) -> str:
    pages = sources(*RUN, ending="*.md")
    return "\n".join(
        re.findall(rf"^```(?:\{{code-block\}} )?{language}\n(.*?)^```$", pages, re.M | re.S)
    )


# In a process of its own, because the names of the extension's modules are too common for this one.
ASK = """
import api, importlib, inspect, json

def doctest(path):
    package, _, name = path.rpartition(".")
    return ">>>" in (inspect.getdoc(getattr(importlib.import_module(package), name)) or "")

print(json.dumps({path: doctest(path) for path in api.described()}))
"""


@pytest.fixture(scope="module")
def public() -> dict[str, bool]:
    """What the page of the Python interface describes, and whether it has a doctest of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "docs" / "_ext"), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, bool] = json.loads(done.stdout)
    return found


def test_every_public_name_has_an_example_that_runs(public: dict[str, bool]) -> None:
    assert len(public) > 150
    assert "mindgap.examine" in public
    shown = "\n".join(LINE.findall(sources("src", ending="*.py"))) + blocks("python")
    elsewhere = sources(*ELSEWHERE, ending="*.py")
    others = [path for path, own in public.items() if not own]
    assert not [path for path in others if not used(path, shown, elsewhere)]


def used(path: str, shown: str, elsewhere: str) -> bool:
    """Whether a doctest, a block or a test uses a name."""
    package, _, name = path.rpartition(".")
    if package.startswith("mindgap.integrations."):  # all of them have a MonitorCallback
        shown = "\n".join(re.findall(rf"^from {package} import .*$", shown, re.M))
    service = package == "mindgap.data" or name.endswith("Executor")
    return bool(re.search(rf"\b{name}\b", shown + elsewhere * service))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_examples_that_can_be_typed(command: str) -> None:
    module = importlib.import_module(f"mindgap.cli.commands.{command.replace('-', '_')}")
    words = (module.__doc__ or "").replace("\\\n", " ")
    lines = re.findall(r"^  mindgap (.*)$", words, re.M)
    assert lines, "the help must show how to use the command"
    assert not re.search(r"^mindgap ", words, re.M), "examples are indented by two"
    for line in lines:
        typed = shlex.split(line.partition(" > ")[0])
        assert typed[0] == command
        assert build().parse_args(typed).run is module.run


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_run(command: str) -> None:
    ran = blocks("bash") + "\n"
    tested = sources("tests/cli", "tests/jobs", ending="test_*.py")
    called = rf'^mindgap {command}\b|(?:main\(\[?|out\(|\()"{command}"'
    assert re.search(called, ran + tested, re.M), "a block that is run, or a test, must call it"
