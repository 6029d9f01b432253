"""The examples of the page on other training loops run, each in a fresh interpreter and folder."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
SAID = {
    "lightning": r"\[(\(\d+, -?[\d.]+\)(, )?)+\]",
    "transformers": r"steps: 8 epoch of the optimizer: 2",
    "skorch": r"right on the test data: True",
}


@pytest.mark.parametrize("package", SAID)
def test_the_example_runs(tmp_path: Path, package: str) -> None:
    for needed in ("transformers", "accelerate") if package == "transformers" else (package,):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (code,) = [block for block in blocks if re.search(rf"^(import|from) {package}\b", block, re.M)]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert re.search(SAID[package], done.stdout), done.stdout + done.stderr


def test_every_block_of_the_page_is_run() -> None:
    assert len(re.findall(r"^```python$", PAGE.read_text(encoding="utf-8"), re.M)) == len(SAID)
