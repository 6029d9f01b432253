"""`mindgap improve`: the answer, the page, bad input, and a race that is killed."""

from __future__ import annotations

import contextlib
import io
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mindgap.cli import main

Out = Callable[..., str]


def _words(file: Path, folder: Path, *more: str) -> list[str]:
    store = str(folder / "runs.sqlite")
    few = ["--trainings", "40", "--workers", "1", "--store", store, "-q"]
    return ["improve", f"{file}:make_recipe", *few, *more]


@pytest.fixture(scope="module")
def race(user_text: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a user's file, the store and the page of a whole race, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("race"), io.StringIO()
    (folder / "mine.py").write_text(user_text)
    with contextlib.redirect_stdout(printed):
        page = ["--report", str(folder / "page.html")]
        assert main(_words(folder / "mine.py", folder, *page)) == 0
    return folder, printed.getvalue()


def test_prints_the_answer_and_writes_pages(
    race: tuple[Path, str], tmp_path: Path, out: Out
) -> None:
    folder, text = race
    assert "mine: test error on 30 samples" in text
    assert 'id="verdict"' in (folder / "page.html").read_text()
    data = json.loads(out(*_words(folder / "mine.py", folder, "--json")))
    assert data["kind"] == "improved"
    assert data["headline"] in text
    (tmp_path / "saved.json").write_text(json.dumps(data))
    for name in ("again.html", "again.md", "again.txt"):
        out("report", str(tmp_path / "saved.json"), "-o", str(tmp_path / name))
        assert data["headline"][:20] in (tmp_path / name).read_text()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--trainings", "3"], "at least 40 trainings, got 3"),
        (["--budget", "soon"], "budget must be a time such as '30m'"),
        (["--remedies", "dropuot"], "Did you mean 'dropout'?"),
        (["--report", "page.pdf"], "end in .html or .json or .md"),
        (["--holdout", "2"], "holdout must be"),
        (["--workers", "0"], "workers must be"),
    ],
)
def test_bad_input(
    more: list[str], told: str, user_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_words(user_file, tmp_path), *more]) == 2
    assert told in capsys.readouterr().err


def test_what_is_no_recipe(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["improve", f"{user_file}:make_subject"]) == 2
    assert "must return a mindgap.Recipe, got Subject" in capsys.readouterr().err


def test_a_killed_race_resumes_where_it_stopped(
    race: tuple[Path, str], user_file: Path, tmp_path: Path, out: Out
) -> None:
    words = [sys.executable, "-m", "mindgap", *_words(user_file, tmp_path)]
    kept: dict[str, str] = {}
    moment, killed = random.Random(0), 0
    for _ in range(2):
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and len(_finished(tmp_path)) <= len(kept):
                time.sleep(0.02)
            time.sleep(moment.uniform(0.0, 0.3))  # in the middle of some training
            process.kill()
        killed += process.returncode == -signal.SIGKILL
        found = _finished(tmp_path)
        assert kept.items() <= found.items()  # nothing was trained a second time
        kept = found
    assert killed
    page = str(tmp_path / "page.html")
    told = out(*_words(user_file, tmp_path, "--report", page))
    assert told.replace(str(tmp_path), str(race[0])) == race[1]
    assert kept.items() <= _finished(tmp_path).items()


def _finished(folder: Path) -> dict[str, str]:
    """The trials in the store, and when each of them was finished."""
    path = folder / "runs.sqlite"
    if not path.exists():
        return {}
    try:
        with sqlite3.connect(path, timeout=10) as connection:
            return dict(connection.execute("SELECT id, finished FROM trials").fetchall())
    except sqlite3.OperationalError:  # the file is there before its table
        return {}
