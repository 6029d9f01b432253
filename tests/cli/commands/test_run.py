"""`mindgap run`: settings, results, resuming."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mindgap.cli import main

Out = Callable[..., str]


def test_run_keeps_results_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: Out
) -> None:
    store, results = tmp_path / "runs.sqlite", tmp_path / "results.json"
    words = ("run", "batch-size-gap", "--tiny", "-q", "--store", str(store), "--workers", "1")
    assert main([*words, "--limit", "2"]) == 1
    assert "2 of 4 trials are done and kept" in capsys.readouterr().err
    text = out(*words, "--results", str(results))
    assert "equal steps" in text
    data = json.loads(results.read_text())
    assert data["study"] == "batch-size-gap"
    for name in ("page.html", "page.md"):
        out("report", str(results), "-o", str(tmp_path / name))
        assert "Batch size against generalization gap" in (tmp_path / name).read_text()
    table = json.loads(out(*words, "--json"))
    assert len(table["rows"]) == 4


def test_a_timeout_fails_a_trial_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("run", "batch-size-gap", "--tiny", "-q", "--store", str(tmp_path / "runs.sqlite"))
    assert main([*words, "--limit", "1", "--timeout", "0.001"]) == 1
    told = capsys.readouterr().err
    assert "A trial failed: Timeout: no answer within 0.001 s" in told
    assert main([*words, "--timeout", "0"]) == 2
    assert "timeout must be above 0 seconds, got 0.0" in capsys.readouterr().err
