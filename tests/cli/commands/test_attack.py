"""mindgap attack: masks, goals and smallest changes reach the job, and bad ones are refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from mindgap.cli import main

TARGET = """
import torch
from mindgap import Subject

def make():
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, 4.0, 0.0]]))
        model.bias.copy_(torch.tensor([0.0, -2.5]))
    x = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
    x[0], x[1] = 0.0, 1.0
    return Subject(model, "cross_entropy", (x, model(x).argmax(1)), classes=("cat", "dog"))
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(TARGET)
    return f"{tmp_path / 'nets.py'}:make"


def test_options_reach_the_job(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "mask.npy", np.array([1, 0, 0]))
    files = [str(tmp_path / f"a.{ending}") for ending in ("html", "csv")]
    words = [
        "--mask",
        str(tmp_path / "mask.npy"),
        "--goal",
        "dog",
        "--smallest",
        "--epsilon",
        "0.5",
    ]
    words += ["--epsilon", "1", "--momentum", "0.5", "--no-black-box", "--json"]
    assert main(["attack", target, *words, "--report", files[0], "--samples-csv", files[1]]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["goal"] == "class dog"
    assert told["rows"][1]["reached"] == pytest.approx(1 - told["rows"][1]["accuracy"], abs=0.5)
    with Path(files[1]).open() as file:
        lines = list(csv.DictReader(file))
    # Only the first feature moves, whose slope is 1 of 4: 0.5 of it changes the margin by 0.5.
    broken = [line for line in lines if line["smallest change"]]
    assert 0 < len(broken) < len(lines)
    assert all(line["goal"] == "dog" for line in lines)
    page = Path(files[0]).read_text()
    assert "Predictions driven to class dog" in page
    assert "To class dog" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mask", "none.npy"], "existing .npy file"),
        (["--mask", "nets.py"], "an array of numbers"),
        (["--mask", "words.npy"], "an array of numbers"),
        (["--mask", "wide.npy"], "mask must fit"),
        (["--goal", "dgo"], "Did you mean 'dog'?"),
        (["--goal", "7"], "from 0 to 1"),
        (["--momentum", "-1"], "momentum must be a number of at least 0"),
    ],
)
def test_bad_options_get_one_sentence(
    target: str,
    tmp_path: Path,
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("words.npy", np.array(["a"]))
    np.save("wide.npy", np.ones(5))
    assert main(["attack", target, "--no-black-box", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
