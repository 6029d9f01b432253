"""The tutorial's code runs in order in an empty folder, and prints what its text says it does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def snippets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_snippets", DOCS / "_ext" / "snippets.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def printed(snippets: ModuleType) -> list[tuple[str, str]]:
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    codes = [block.code for block in snippets.blocks(text)]
    return list(zip(codes, snippets.outputs(text), strict=True))


def below(printed: list[tuple[str, str]], part: str) -> str:
    """The output of the block that holds some code."""
    return next(output for code, output in printed if part in code)


def test_every_block_is_run(snippets: ModuleType, printed: list[tuple[str, str]]) -> None:
    fences = (DOCS / "tutorial.md").read_text(encoding="utf-8").count("```")
    assert fences == 2 * len(printed)


def test_the_three_ways_in_end_in_a_verdict(printed: list[tuple[str, str]]) -> None:
    reports = [
        below(printed, part)
        for part in ("print(report)", "mindgap.examine(fitted)", "mindgap examine", "mindgap train")
    ]
    assert all("unseen data" in report for report in reports)
    assert all("binomial-tail" in report for report in (reports[0], reports[2], reports[3]))


def test_remedies_are_judged_in_both_ways(printed: list[tuple[str, str]]) -> None:
    lines = below(printed, "corrected = holm").splitlines()
    assert [line.split()[0] for line in lines] == ["weight-decay", "dropout", "gradient-clipping"]
    answers = [line.rsplit("  ", 1)[1] for line in lines]
    assert "helped" in answers
    assert "did not help" in answers


def test_the_study_is_resumed(printed: list[tuple[str, str]]) -> None:
    assert "1 done, 0 resumed, 0 failed, 3 to run" in below(printed, "limit=1")
    first = below(printed, "print(swept.table)")
    assert "0 failed, 0 to run" in first
    assert below(printed, "mindgap run").strip() in first


def test_outputs_stand_below_their_blocks(snippets: ModuleType) -> None:
    first = "```python\nx = 2\nprint(x + 40)\n```\n"
    second = "```{code-block} python\n:caption: a.py\n\nprint(1)\n```\n"
    shown = snippets.with_outputs(f"One\n\n{first}\nTwo\n\n{second}")
    assert shown.index("print(x + 40)") < shown.index("42") < shown.index("Two")
    assert shown.count(":class: output") == 1


def test_a_failing_block_is_an_error(snippets: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        snippets.outputs("```python\n1 / 0\n```\n")
    with pytest.raises(RuntimeError, match="command failed"):
        snippets.outputs("```bash\nmindgap explain no-such-thing\n```\n")
