"""Every spec has its page, the pages build without a warning, and no page fetches anything."""

from __future__ import annotations

import ast
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mindgap.cli.commands.train import parse_remedy
from mindgap.cli.parser import COMMANDS
from mindgap.core.references import bibliography
from mindgap.core.registry import catalog
from mindgap.data import available

DOCS = Path(__file__).parents[2] / "docs"
FETCHING = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "object": "data",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the documentation with generated pages, so that tests in parallel do not meet."""
    folder = tmp_path_factory.mktemp("docs") / "docs"
    shutil.copytree(
        DOCS, folder, ignore=shutil.ignore_patterns("_build", "catalog", "__pycache__", "results")
    )
    (folder / "results" / "benchmarks").mkdir(parents=True)
    (folder / "results" / "batch-size-gap.json").write_text(json.dumps(results()))
    rows = [{"name": "a|b", "cpu_ratio": 12.3456}, {"name": "c", "note": {"odd": 1}}]
    figures = {"environment": {"torch": "2"}, "rows": rows, "seconds": 0.5}
    (folder / "results" / "benchmarks" / "some_case.json").write_text(json.dumps(figures))
    return folder


def results() -> dict[str, object]:
    return {
        "schema": 1,
        "study": "batch-size-gap",
        "fields": {"seeds": 2},
        "expected": {},
        "complete": True,
        "table": {
            "title": "A saved table",
            "columns": ["size"],
            "rows": [[0.12345]],
            "notes": [],
            "charts": [],
        },
        "trials": [{"parameters": {}, "seed": 0, "status": "done", "record": {}}],
        "versions": {"mindgap": ["0"]},
        "cost": {"wall_seconds": 1.0, "cpu_seconds": 1.0},
        "date": "2024-01-01T00:00:00",
    }


@pytest.fixture(scope="module")
def built(source: Path) -> Path:
    """The pages as HTML; the tutorial's code has a test of its own and is not run here."""
    target = source.parent / "html"
    words = [
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-D",
        "run_snippets=0",
        str(source),
        str(target),
    ]
    environment = {
        **os.environ,
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return target


def page(built: Path, name: str) -> str:
    return (built / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", catalog())
def test_every_spec_has_a_page(built: Path, name: str) -> None:
    cls = catalog()[name]
    text = page(built, f"catalog/{cls.family}/{name}.html")
    assert '<div class="formula"><math' in text
    assert "<math" not in re.sub(r"<math.*?</math>", "", text, flags=re.S)
    for part in (
        "Formula",
        "How to read it",
        "What it assumes",
        "Settings",
        "From Python",
        "References",
        "Source",
    ):
        assert f">{part}<" in text, part
    assert all(key in text for key in cls.cites)


@pytest.mark.parametrize("name", catalog())
def test_what_a_page_tells_to_type_is_right(source: Path, built: Path, name: str) -> None:
    cls = catalog()[name]
    text = (source / "catalog" / cls.family / f"{name}.md").read_text(encoding="utf-8")
    python, command = (
        re.search(rf"````{kind}\n(.*?)````", text, re.S)[1] for kind in ("python", "bash")
    )
    imported = next(node for node in ast.parse(python).body if isinstance(node, ast.ImportFrom))
    names = {}
    exec(ast.unparse(imported), names)
    assert names[imported.names[0].name] is cls
    made = next(node for node in ast.walk(ast.parse(python)) if _calls(node, cls.__name__))
    assert eval(ast.unparse(made), names) == cls()
    if cls.family == "remedy":
        assert parse_remedy(command.split("--remedy ")[1].split()[0]) == cls()


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def test_families_and_references_list_everything(built: Path) -> None:
    for family in ("measures", "bounds", "remedies", "studies"):
        assert (built / "catalog" / f"{family}.html").exists()
    text = page(built, "catalog/bibliography.html")
    assert all(f'id="ref-{key.replace("_", "-")}"' in text for key in bibliography())


def test_parts_are_taken_from_the_package(built: Path) -> None:
    assert all(f"usage: mindgap {name}" in page(built, "cli.html") for name in COMMANDS)
    assert all(f">{name}</span>" in page(built, "data.html") for name in available())
    text = page(built, "api.html")
    for name in (
        "examine",
        "fit",
        "ensemble",
        "sweep",
        "find",
        "Subject",
        "Recipe",
        "Result",
        "Report",
        "Probe",
    ):
        assert f'id="mindgap.{name}"' in text, name


def test_saved_results_and_benchmarks_are_shown(built: Path) -> None:
    assert "0.1235" in page(built, "catalog/results/batch-size-gap.html")
    text = page(built, "benchmarks.html")
    assert "Some case" in text
    assert "12.35" in text
    assert "a|b" in text


class Fetches(html.parser.HTMLParser):
    """Collects what a browser would load for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in FETCHING and named.get("rel") not in (
            "index",
            "search",
            "next",
            "prev",
            "author",
            "canonical",
        ):
            self.found.append(named.get(FETCHING[tag]) or "")


def test_no_page_fetches_anything_from_elsewhere(built: Path) -> None:
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > len(catalog())
    for path in pages:
        seen = Fetches()
        seen.feed(path.read_text(encoding="utf-8"))
        assert seen.found
        assert not [address for address in seen.found if re.match(r"(https?:)?//", address)], path
    styles = "".join(path.read_text(encoding="utf-8") for path in built.rglob("*.css"))
    assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", styles)


def extension(source: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code beside the documentation's own modules, whose names are too common for this process."""
    environment = {**os.environ, "PYTHONPATH": str(source / "_ext")}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )


def test_a_second_writing_changes_nothing_and_removes_what_is_gone(
    source: Path, built: Path
) -> None:
    stale = source / "catalog" / "measure" / "gone.md"
    stale.write_text("# Gone\n")
    before = {
        path: path.stat().st_mtime_ns for path in source.rglob("catalog/**/*.md") if path != stale
    }
    done = extension(source, f"import catalog; catalog.write({str(source)!r})")
    assert done.returncode == 0, done.stderr
    assert not stale.exists()
    assert {path: path.stat().st_mtime_ns for path in source.rglob("catalog/**/*.md")} == before


def test_pages_can_be_written_without_saved_results(source: Path, tmp_path: Path) -> None:
    done = extension(source, f"import catalog; catalog.write({str(tmp_path)!r})")
    assert done.returncode == 0, done.stderr
    assert "make reproduce" in (tmp_path / "catalog" / "results.md").read_text()
    assert "no saved figures" in (tmp_path / "catalog" / "parts" / "benchmarks.md").read_text()


def test_a_formula_that_cannot_be_drawn_ends_the_build(source: Path) -> None:
    done = extension(source, r"import mathml; mathml.mathml(r'\nosuch x')")
    assert done.returncode
    assert "nosuch" in done.stderr
