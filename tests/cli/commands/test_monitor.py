"""mindgap monitor: the text, JSON, a page, and following a log that grows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from mindgap import Monitor
from mindgap.cli import main


@pytest.fixture
def log(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    path = tmp_path / "run.jsonl"
    with Monitor(model, log=path, every=2) as monitor:
        for _ in range(4):
            model.zero_grad()
            loss = model(torch.ones(8, 2)).square().mean()
            loss.backward()
            monitor.step(loss)
    return path


def test_text_json_and_page(out: Callable[..., str], log: Path, tmp_path: Path) -> None:
    assert "4 steps, 3 readings." in out("monitor", str(log))
    assert json.loads(out("monitor", str(log), "--json"))["verdict"] == "healthy"
    page = tmp_path / "page.html"
    out("monitor", str(log), "--report", str(page))
    assert "training monitor" in page.read_text()


def test_following_ends_with_ctrl_c(
    out: Callable[..., str], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            line = json.loads(log.read_text().splitlines()[-1])
            with log.open("a") as file:
                file.write(json.dumps({**line, "step": 6, "first": 5, "losses": [1, 2]}) + "\n")
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", wait)
    text = out("monitor", str(log), "--follow", "--interval", "0.5")
    shown = [line for line in text.splitlines() if line.startswith("step ")]
    assert [int(line.split()[1]) for line in shown] == [4, 6]
    assert "6 steps" in text
    assert looks == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    "words", [["none.jsonl"], ["{log}", "--interval", "0"], ["{log}", "--report", "page.pdf"]]
)
def test_bad_words_are_one_sentence(words: list[str], log: Path) -> None:
    assert main(["monitor", *[word.format(log=log) for word in words]]) == 2
