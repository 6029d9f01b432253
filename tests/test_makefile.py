"""The Makefile keeps no list of studies or benchmarks by hand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mindgap.core import catalog

ROOT = Path(__file__).parent.parent
PEERS = {
    "PyHessian": "pyhessian",
    "BackPACK": "backpack-for-pytorch",
    "loss-landscapes": "loss-landscapes",
    "foolbox": "foolbox",
    "torchattacks": "torchattacks",
    "ART": "adversarial-robustness-toolbox",
}
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


def test_the_table_of_ratios_names_the_versions_of_the_peers(tmp_path: Path) -> None:
    words = [sys.executable, "benchmarks/table.py", "docs/results/benchmarks"]
    subprocess.run([*words, "--output", str(tmp_path / "all")], cwd=ROOT, check=True)
    rows = json.loads((tmp_path / "all.json").read_text())["rows"]
    for peer, package in PEERS.items():
        own = [row["versions"] for row in rows if peer in row["what"]]
        assert own, peer
        assert all(f"{package} " in versions for versions in own), peer
