"""The examples of the page on other training loops run, each in a process and a folder of its own."""

import re
from pathlib import Path

import pytest
from processes import run_program

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
SAID = {
    "lightning": r"\[(\(\d+, -?[\d.]+\)(, )?)+\]",
    "transformers": r"steps: 8 epoch of the optimizer: 2",
    "skorch": r"right on the test data: True",
}


@pytest.mark.parametrize("package", SAID)
def test_the_example_runs(tmp_path: Path, package: str) -> None:
    for needed in ("transformers", "accelerate") if package == "transformers" else (package,):
        pytest.importorskip(needed)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (code,) = [block for block in blocks if re.search(rf"^(import|from) {package}\b", block, re.M)]
    printed = run_program(code, tmp_path)
    assert re.search(SAID[package], printed), printed


def test_every_block_of_the_page_is_run() -> None:
    assert len(re.findall(r"^```python$", PAGE.read_text(encoding="utf-8"), re.M)) == len(SAID)
