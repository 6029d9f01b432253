"""`mindgap doctor`: what is installed, and what is wrong."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from mindgap.cli.commands import doctor

Out = Callable[..., str]
ROOT = Path(__file__).resolve().parents[3]


def test_doctor(out: Out) -> None:
    text = out("doctor")
    assert "all is well" in text
    data = json.loads(out("doctor", "--json"))
    assert data["problems"] == []
    assert data["extras"]["search"] is True
    assert data["specs"]["measure"] >= 6


def test_extras_are_those_of_the_package(out: Out) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = json.loads(out("doctor", "--json"))["extras"]
    assert set(extras) == set(project["optional-dependencies"]) - {"dev", "docs", "test"}


REQUIRES = [
    "torch>=99.1",
    "numpy",
    "nowhere-to-be-found>=1; extra == 'moon'",
    'tqdm; extra == "bar"',
]


def test_says_what_is_missing_or_too_old(out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: REQUIRES)
    data = json.loads(out("doctor", "--json", code=1))
    assert data["extras"] == {"bar": True, "moon": False}
    assert len(data["problems"]) == 1
    assert data["problems"][0].startswith("torch must be at least 99.1, got 2.")
