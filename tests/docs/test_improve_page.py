"""The training functions of the page on improve run, each in a fresh interpreter and folder."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "improve.md"
NEEDS = {
    "raw loop": (),
    "Lightning": ("lightning",),
    "Hugging Face": ("transformers", "accelerate"),
    "skorch": ("skorch",),
}
PATTERN = r"^```\{code-block\} python\n:caption: ([^\n]*)\n(.*?)^```$"
BLOCKS = dict(re.findall(PATTERN, PAGE.read_text(encoding="utf-8"), re.M | re.S))


@pytest.mark.parametrize("name", NEEDS)
def test_the_example_runs(tmp_path: Path, name: str) -> None:
    for needed in NEEDS[name]:
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", BLOCKS[name]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("."), done.stdout + done.stderr
    assert (tmp_path / "runs.sqlite").exists()


def test_every_block_of_the_page_is_run() -> None:
    assert set(BLOCKS) == set(NEEDS)
