"""`mindgap examine` and `mindgap report`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mindgap.cli import main

Out = Callable[..., str]


def test_examine_a_users_model(user_file: Path, tmp_path: Path, out: Out) -> None:
    page = tmp_path / "report.html"
    text = out("examine", f"{user_file}:make_subject", "--html", str(page), "-q")
    assert "mine" in text
    assert all(
        name in text.lower().replace(" ", "-") for name in ("gap", "margin", "binomial-tail")
    )
    assert page.read_text().startswith("<!doctype html>") or page.read_text().startswith(
        "<!DOCTYPE html>"
    )
    data = json.loads(out("examine", f"{user_file}:make_subject", "--json"))
    assert data["verdict"]


def test_saved_report_becomes_a_page(user_file: Path, tmp_path: Path, out: Out) -> None:
    saved, page = tmp_path / "report.json", tmp_path / "page.html"
    out("examine", f"{user_file}:make_subject", "--report", str(saved), "-q")
    out("report", str(saved), "-o", str(page))
    assert "mine" in page.read_text()


def test_measures_take_settings_as_remedies_do(user_file: Path, out: Out) -> None:
    wanted = [
        "--measure",
        "margin:quantile=0.5",
        "--measure",
        "pacgen:curvature=gauss-newton,draws=1",
    ]
    report = json.loads(out("examine", f"{user_file}:make_subject", "--json", *wanted))
    found = {
        card["result"]["name"]: card["result"]["provenance"]["parameters"]
        for card in report["cards"]
    }
    assert found["margin"]["quantile"] == 0.5
    assert found["pacgen"]["curvature"] == "gauss-newton"
    assert found["pacgen"]["draws"] == 1


def test_a_measure_with_a_broken_setting_is_one_sentence(
    user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["examine", f"{user_file}:make_subject", "--measure", "pacgen:curvature"]) == 2
    text = capsys.readouterr().err
    assert "A measure must look like name:field=value, got 'pacgen:curvature'" in text
    assert "Traceback" not in text
