"""The map of the code: folders that can be overlooked, files that hold one idea, names that somebody uses."""

from __future__ import annotations

import ast
import collections
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "mindgap"
SPECS = ("measures", "bounds", "remedies", "studies", "diagnoses")  # files named after their spec
FILES = sorted(path for path in SOURCE.rglob("*.py"))
MODULES = [path for path in FILES if path.name != "__init__.py"]
FOLDERS = sorted({path.parent for path in FILES})
MOST_FILES, MOST_MODULES, MOST_LOADED = 24, 390, 75


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
class TestFolders:
    def test_holds_few_files(self, folder: Path) -> None:
        assert len([path for path in MODULES if path.parent == folder]) <= MOST_FILES

    def test_has_no_three_files_with_a_common_prefix(self, folder: Path) -> None:
        if folder.relative_to(SOURCE).parts[:1] and folder.relative_to(SOURCE).parts[0] in SPECS:
            return
        prefixes = [path.stem.split("_")[0] for path in MODULES if path.parent == folder]
        crowded = {word for word, count in collections.Counter(prefixes).items() if count > 2}
        assert not crowded - {""}, "a prefix is a folder"

    def test_says_what_belongs_there(self, folder: Path) -> None:
        words = ast.get_docstring(tree_of(folder / "__init__.py")) or ""
        assert 20 < len(words.split("\n")[0]) <= 120
        assert words.split("\n")[0].endswith((".", "?"))


def test_tests_mirror_the_source() -> None:
    own = {Path(), Path("docs")}
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")
    }
    strangers = [str(folder) for folder in folders - own if not (SOURCE / folder).is_dir()]
    assert not strangers


def test_number_of_modules() -> None:
    """Folders of specs may grow, one file per spec; what serves them should not."""
    assert (
        len([path for path in MODULES if path.relative_to(SOURCE).parts[0] not in SPECS])
        <= MOST_MODULES
    )


def code_lines(tree: ast.Module, text: str) -> tuple[int, int]:
    """Lines of import statements, and lines that are neither blank, comment nor docstring."""
    words, imports = set[int](), 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports += node.end_lineno - node.lineno + 1
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None
            words |= set(
                range(node.body[0].lineno, node.body[0].end_lineno + 1) if documented else ()
            )
    lines = enumerate(text.splitlines(), 1)
    counted = [k for k, line in lines if line.strip() and not line.lstrip().startswith("#")]
    return imports, len(set(counted) - words)


def test_imports_are_a_tenth_of_the_code() -> None:
    counts = [code_lines(tree_of(path), path.read_text()) for path in FILES]
    imports, code = (sum(column) for column in zip(*counts, strict=True))
    assert imports <= 0.1 * code


def test_long_lines_are_rare() -> None:
    lines = [line for path in FILES for line in path.read_text().splitlines()]
    assert sum(len(line) > 100 for line in lines) <= 0.01 * len(lines)


def public_names(path: Path) -> Iterator[str]:
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            decorators = {getattr(one, "func", one) for one in node.decorator_list}
            registered = {getattr(one, "id", "") for one in decorators} & {"implements", "dataset"}
            if not registered:
                yield node.name


def words_of(path: Path) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8")))


def test_public_names_are_used_by_someone() -> None:
    """A name is public only if a second module, a test or a page needs it; specs are found by the registry."""
    users: dict[Path, set[str]] = {path: words_of(path) for path in FILES}
    outside = [
        path
        for folder in ("tests", "docs", "benchmarks", "tools")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md") and "results" not in path.parts
    ]
    for path in [*outside, *(SOURCE / "report" / "templates").glob("*.html"), ROOT / "README.md"]:
        users[path] = words_of(path)
    lonely = [
        f"{name_of(path)}: {name}"
        for path in MODULES
        if path.relative_to(SOURCE).parts[0] not in SPECS and "commands" not in path.parts
        for name in public_names(path)
        if not any(name in words for other, words in users.items() if other != path)
    ]
    assert not lonely, "make them private"


EXAMINE = """
import sys, torch, mindgap
x = torch.arange(24.0).view(12, 2)
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
data = (x, torch.arange(12) % 2)
mindgap.examine(mindgap.Subject(model, "cross_entropy", data, data)).save(sys.argv[1])
names = [name.split(".") for name in sys.modules if name.partition(".")[0] == "mindgap"]
print(sum(name[1:2] not in [[family] for family in sys.argv[2:]] for name in names))
"""


def test_examine_loads_only_what_it_needs(tmp_path: Path) -> None:
    """Specs and what they compute with aside: all that look at a subject are loaded.

    They are more than all else: examine runs some 60 measures, 20 bounds and 50 diagnoses, one per
    file.
    """
    words = [sys.executable, "-c", EXAMINE, str(tmp_path / "report.html"), *SPECS, "ops"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) <= MOST_LOADED
