"""The code of a page per user runs in order in an empty folder, and prints what its text says."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("practitioner", "researcher", "simulator", "teacher")


@pytest.fixture(scope="module")
def snippets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_snippets", DOCS / "_ext" / "snippets.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def printed_by(snippets: ModuleType, page: str) -> list[tuple[str, str]]:
    text = (DOCS / "users" / f"{page}.md").read_text(encoding="utf-8")
    blocks, others = snippets.blocks(text), text.count("```console") + text.count("```{include}")
    assert text.count("```") == 2 * (len(blocks) + others), "every block but those must be run"
    return [
        (block.code, output) for block, output in zip(blocks, snippets.outputs(text), strict=True)
    ]


def below(printed: list[tuple[str, str]], part: str) -> str:
    """The output of the block that holds some code."""
    return next(output for code, output in printed if part in code)


def test_every_page_is_run_when_the_pages_are_built(snippets: ModuleType) -> None:
    assert [f"users/{page}" for page in PAGES] == list(snippets.EXECUTED)
    assert {path.stem for path in (DOCS / "users").glob("*.md")} == set(PAGES)


def test_the_practitioner_gets_the_right_diagnosis(snippets: ModuleType) -> None:
    for needed in ("sklearn", "transformers"):
        pytest.importorskip(needed)
    printed = printed_by(snippets, "practitioner")
    report = below(printed, "mindgap examine")
    assert "WRONG LABELS. About " in report
    assert "binomial-tail" in report
    assert "cleaned is lower" in below(printed, "mindgap.compare")
    assert "percentage points" in below(printed, "RandomForestClassifier")
    assert "percentage points" in below(printed, "BertForSequenceClassification")
    assert "GRADIENT" not in "".join(output for _, output in printed)


def test_the_researcher_gets_the_measure_right(snippets: ModuleType) -> None:
    printed = printed_by(snippets, "researcher")
    dense, ours = (float(line.split()[-1]) for line in below(printed, "dense Hessian").splitlines())
    assert ours == pytest.approx(dense, rel=1e-4)
    assert "(exact, standard error None)" in below(printed, "AverageSharpness(draws")
    assert below(printed, "spearman(values").count("+-") == 3
    check_the_remedies(below(printed, "corrected = holm"))
    check_the_study(printed)


def check_the_remedies(output: str) -> None:
    lines = output.splitlines()
    assert [line.split()[0] for line in lines] == ["weight-decay", "dropout", "gradient-clipping"]
    answers = {line.rsplit("  ", 1)[1] for line in lines}
    assert answers <= {"helped", "did not help", "hurt"}


def check_the_study(printed: list[tuple[str, str]]) -> None:
    assert "1 done, 0 resumed, 0 failed, 3 to run" in below(printed, "limit=1")
    resumed = below(printed, "print(swept.table)")
    assert "3 done, 1 resumed, 0 failed, 0 to run" in resumed
    assert below(printed, "mindgap run").strip() in resumed


def test_the_scientist_gets_points_and_a_judged_surrogate(snippets: ModuleType) -> None:
    printed = printed_by(snippets, "simulator")
    assert "40 points known: 20 of the initial design, 20 new" in below(printed, "--rounds 2")
    report = below(printed, "mindgap.examine")
    assert "GRADIENT MASKING" not in report
    assert "root-mean-squared-error" in report
    assert "largest error 0." in below(printed, "argmax")
    assert "difference of the squared errors" in below(printed, "paired(")


def test_the_teacher_gets_a_figure_and_a_patient(snippets: ModuleType) -> None:
    printed = printed_by(snippets, "teacher")
    assert "Linear" in below(printed, "mindgap run")
    assert "LEAKED SAMPLES" in below(printed, "patients.py:third")


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
