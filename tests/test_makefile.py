"""The Makefile keeps no list of studies or benchmarks by hand."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mindgap.core import catalog

ROOT = Path(__file__).parent.parent
BENCHMARKS = {path.name for path in (ROOT / "benchmarks").glob("*.py")} - {"timing.py", "table.py"}


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make on the PATH")
def test_bench_runs_every_benchmark() -> None:
    words = ["make", "--dry-run", "--always-make", "bench"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    words = re.search(r"for name in ([\w ]+);", done.stdout)
    assert words is not None
    assert {f"{name}.py" for name in words[1].split()} == BENCHMARKS


def test_no_study_or_benchmark_is_named() -> None:
    text = (ROOT / "Makefile").read_text()
    assert "mindgap reproduce $(or $(AGAIN),--missing) --results docs/results" in text
    assert not [name for name in catalog("study") if name in text]
    assert not [name for name in BENCHMARKS if name in text]
