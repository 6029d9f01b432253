"""A model in a file of the user's own, and a command whose output is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mindgap.cli import main

USER_FILE = """
import torch, mindgap
from torch import nn

torch.manual_seed(0)
x = torch.randn(80, 5)
y = (x[:, 0] > 0).long()

def make_subject():
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    return mindgap.Subject(model, "cross_entropy", (x[:50], y[:50]), (x[50:], y[50:]), name="mine")

def make_recipe():
    factory = lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    return mindgap.Recipe(model=factory, train=(x[:50], y[:50]), test=(x[50:], y[50:]), epochs=3, name="mine")
"""


@pytest.fixture(scope="session")
def user_text() -> str:
    return USER_FILE


@pytest.fixture
def user_file(user_text: str, tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(user_text)
    return path


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command and returns what it printed."""

    def run(*words: str, code: int = 0) -> str:
        assert main(list(words)) == code
        return capsys.readouterr().out

    return run
