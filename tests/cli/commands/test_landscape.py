"""mindgap landscape: from a target or a named data set, to a table, a page, CSV and PNG."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mindgap.cli import main

TARGET = """
import torch
from mindgap import Recipe, fit
from mindgap.nets import MLP

def make(seed):
    x = torch.linspace(-1, 1, 40)[:, None]
    recipe = Recipe(model=lambda: MLP((1, 8, 1)), train=(x, x**2), loss="mse", epochs=5)
    return fit(recipe, seed=seed)

def first():
    return make(0)

def second():
    return make(1).subject()
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(TARGET)
    return f"{tmp_path / 'nets.py'}:"


def test_a_target_with_all_files(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: str(tmp_path / f"a.{name}") for name in ("csv", "png", "html")}
    words = ["--csv", files["csv"], "--png", files["png"], "--report", files["html"], "-q"]
    code = main(["landscape", f"{target}first", "--points", "5", "--normalize", "layer", *words])
    assert code == 0
    assert "loss of the model" in capsys.readouterr().out
    assert all(Path(path).stat().st_size > 100 for path in files.values())


def test_a_second_model(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--to", f"{target}second", "--points", "5", "--steps", "20", "--json"]
    assert main(["landscape", f"{target}first", *words]) == 0
    assert "barrier on the line" in json.loads(capsys.readouterr().out)["numbers"]


def test_a_named_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--epochs", "2", "--points", "3", "--to", "1", "--steps", "3", "-q"]
    assert main(["landscape", "--data", "two-moons", *words]) == 0
    assert "distance of the minima" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "neither"),
        (["a.py:f", "--data", "digits"], "both"),
        (["a.py:f", "--epochs", "3"], "--epochs"),
        (["--data", "digits", "--png", "a.jpg"], ".png"),
        (["--data", "digits", "--normalize", "best"], "best"),
    ],
)
def test_bad_words_are_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["landscape", *words]) == 2
    assert told in capsys.readouterr().err
