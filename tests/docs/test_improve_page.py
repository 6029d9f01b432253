"""The training functions of the page on improve run, each in a process and a folder of its own."""

import re
from pathlib import Path

import pytest
from processes import run_program

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
        pytest.importorskip(needed)
    printed = run_program(BLOCKS[name], tmp_path)
    assert printed.strip().endswith("."), printed
    assert (tmp_path / "runs.sqlite").exists()


def test_every_block_of_the_page_is_run() -> None:
    assert set(BLOCKS) == set(NEEDS)
