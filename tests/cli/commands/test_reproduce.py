"""`mindgap reproduce`: the list, what it runs, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mindgap.cli import main

Out = Callable[..., str]


def test_lists_without_running(tmp_path: Path, out: Out) -> None:
    words = ("reproduce", "--list", "--results", str(tmp_path), "--document", "K")
    data = json.loads(out(*words, "--json"))
    assert {row["document"] for row in data["rows"]} == {"darc"}
    text = out(*words)
    assert "DARC1 on ILSVRC 2012" in text
    assert "never run" in text
    assert out("reproduce", "--results", str(tmp_path)).count("\n") > len(data["rows"])
    assert not list(tmp_path.iterdir())


def test_runs_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str], out: Out) -> None:
    folder, page = tmp_path / "kept", tmp_path / "page.html"
    words = ("reproduce", "worked-examples", "--results", str(folder), "--workers", "1")
    text = out(*words, "--store", str(tmp_path / "s.sqlite"), "-q", "--report", str(page))
    assert "worked-examples  kept" in text
    assert (folder / "worked-examples.json").is_file()
    assert 'href="kept/worked-examples.json"' in page.read_text()
    capsys.readouterr()
    assert main([*words]) == 0
    assert "Nothing was run: all of these have a kept result" in capsys.readouterr().err


def test_a_failure_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mindgap.core import MissingExtraError
    from mindgap.studies import WorkedExamples

    def refuse(self: object) -> None:
        raise MissingExtraError("The study must have pandas, got none. Install it.")

    monkeypatch.setattr(WorkedExamples, "prepare", refuse)
    words = ["reproduce", "worked-examples", "--results", str(tmp_path / "kept"), "-q"]
    assert main([*words, "--store", str(tmp_path / "s.sqlite")]) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("vbsw-tabel-1",), "Did you mean 'vbsw-table-1'?"),
        (("--document", "nowhere"), "document must be one of the known names, got 'nowhere'"),
        (("--list", "--again"), "--again must not come with --list"),
        (("--list", "--report", "page.pdf"), "must end in .html or .htm or .json"),
        (("--results", __file__), "results must be a folder"),
    ],
)
def test_bad_input(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
