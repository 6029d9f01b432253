"""The parser: help everywhere, commands that are found by their files, one entry point."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys

import pytest

import mindgap
from mindgap._version import __version__
from mindgap.cli import main
from mindgap.cli.parser import COMMANDS, IN_PYTHON
from mindgap.core.registry import catalog


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: mindgap {command}".rstrip())
    assert all(len(line) <= 120 for line in text.splitlines())


@pytest.mark.parametrize("name", IN_PYTHON)
def test_functions_of_python_name_their_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(getattr(mindgap, name))
    assert name not in COMMANDS
    assert main([name, "my.py:make_subject"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    command = said.partition("'mindgap ")[2].split()[0].strip("'.")
    assert command in COMMANDS


def test_commands_are_the_files_of_their_folder() -> None:
    from mindgap.cli import commands

    modules = [module.name for module in pkgutil.iter_modules(commands.__path__)]
    assert list(COMMANDS) == [name.replace("_", "-") for name in sorted(modules)]
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"mindgap.cli.commands.{name.replace('-', '_')}")
        assert (module.__doc__ or "").split("\n")[0].rstrip(".") == summary
        assert 20 < len(summary) < 80, name
        assert callable(module.add)
        assert callable(module.run)


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["bound", "kl-inverse", "--help"],
        ["run", "batch-size-gap", "--help"],
        ["run", "--help", "batch-size-gap"],
        ["run", "--tiny", "batch-size-gap", "-h"],
    ],
    ids=" ".join,
)
def test_help_of_a_spec_shows_its_fields(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = helped(capsys, *words)
    name = next(word for word in words if word in catalog())
    assert text.startswith(f"usage: mindgap {words[0]} {name}")
    for field in catalog()[name]().parameters:
        assert f"--{field.replace('_', '-')}" in text


@pytest.mark.parametrize("words", [["run"], ["run", "--help"], ["bound"], ["bound", "-h"]])
def test_without_a_name_the_names_are_listed(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = helped(capsys, *words)
    family = {"run": "study", "bound": "bound"}[words[0]]
    assert all(f"  {name} " in text for name in catalog(family))
    assert f"`mindgap {words[0]} {family.upper()} --help` shows the settings" in text


def test_options_without_a_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--seeds", "3"]) == 2
    assert "mindgap run must name a study, got only options" in capsys.readouterr().err


def test_version_and_module_entry() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mindgap", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"mindgap {__version__}"


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m mindgap explain margin | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.match(r"margin ", done.stdout)
    assert done.stderr == ""
