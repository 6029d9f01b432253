"""The tutorial's code runs in order in an empty folder, and prints what its text says it does."""

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


def test_the_tutorial_runs_and_prints_what_it_says(snippets: ModuleType) -> None:
    """One test, so that parallel workers do not run the page twice."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    blocks = snippets.blocks(text)
    assert text.count("```") == 2 * len(blocks), "every block must be one that is run"
    printed = [
        (block.code, output) for block, output in zip(blocks, snippets.outputs(text), strict=True)
    ]
    check_the_three_ways_in(printed)
    check_the_remedies(printed)
    check_the_study(printed)


def below(printed: list[tuple[str, str]], part: str) -> str:
    """The output of the block that holds some code."""
    return next(output for code, output in printed if part in code)


def check_the_three_ways_in(printed: list[tuple[str, str]]) -> None:
    ways = ("print(report)", "mindgap examine", "mindgap train")
    assert all("binomial-tail" in below(printed, way) for way in ways)
    assert all("The gap between test and training error" in below(printed, way) for way in ways)
    assert below(printed, "mindgap.examine(fitted)").rstrip().endswith(".")
    assert "samples to look at" in below(printed, "save_suspects")
    assert "McNemar's exact test" in below(printed, "--compare")


def check_the_remedies(printed: list[tuple[str, str]]) -> None:
    lines = below(printed, "corrected = holm").splitlines()
    assert [line.split()[0] for line in lines] == ["weight-decay", "dropout", "gradient-clipping"]
    answers = {line.rsplit("  ", 1)[1] for line in lines}
    assert answers == {"helped", "did not help"}


def check_the_study(printed: list[tuple[str, str]]) -> None:
    assert "1 done, 0 resumed, 0 failed, 3 to run" in below(printed, "limit=1")
    resumed = below(printed, "print(swept.table)")
    assert "3 done, 1 resumed, 0 failed, 0 to run" in resumed
    assert below(printed, "mindgap run").strip() in resumed


def test_outputs_appear_below_their_blocks(snippets: ModuleType) -> None:
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
