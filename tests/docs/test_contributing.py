"""The measure that the contributors' page shows is accepted as a plug-in, contracts and all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def example() -> tuple[str, str]:
    text = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    found = re.search(r"```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```$", text, re.M | re.S)
    return found[1], found[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which a package with the example is installed."""
    name, code = example()
    package, info = (
        tmp_path / "site" / "my_measures",
        tmp_path / "site" / "my_measures-1.0.dist-info",
    )
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / name).write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-measures\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mindgap.specs]\nmy_measures = my_measures\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "site")}


def run(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_is_explained(environment: dict[str, str]) -> None:
    out = run(environment, "-m", "mindgap", "explain", "mean-confidence")
    assert "over-confidence" in out
    assert "Guo, Chuan" in out


def test_the_example_keeps_the_contracts(environment: dict[str, str]) -> None:
    words = (
        "tests/test_contracts.py",
        "-k",
        "mean-confidence",
        "-p",
        "no:cacheprovider",
        "-q",
        "-n0",
    )
    out = run(environment, "-m", "pytest", *words)
    assert int(out.split(" passed")[0].split()[-1]) >= 30
    assert "failed" not in out


def test_the_examples_doctest_passes(environment: dict[str, str], tmp_path: Path) -> None:
    out = run(
        environment, "-m", "doctest", "-v", str(tmp_path / "site" / "my_measures" / example()[0])
    )
    (passed,) = re.findall(r"^(\d+) passed", out, re.MULTILINE)
    assert int(passed) >= 1
