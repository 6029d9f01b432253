"""Every entry has its page, the pages build without a warning, and no page fetches anything."""

import ast
import html.parser
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import mindgap
from mindgap.cli.commands.train import parse_remedy
from mindgap.cli.parser import COMMANDS
from mindgap.core import catalog
from mindgap.core.references import bibliography
from mindgap.jobs.explain import Entry, entries

ENTRIES = {f"{entry.family}/{entry.name}": entry for entry in entries()}
FAMILIES = sorted({entry.family for entry in ENTRIES.values()})
DOCS = Path(__file__).parents[2] / "docs"
# Half of the time: the real theme copies its menu of all pages into every page.
PLAIN_THEME = '\nhtml_theme, html_theme_options = "basic", {}\n'
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
    """A copy of the documentation with generated pages, so that parallel tests do not collide."""
    folder = tmp_path_factory.mktemp("docs") / "docs"
    shutil.copytree(
        DOCS, folder, ignore=shutil.ignore_patterns("_build", "catalog", "__pycache__", "results")
    )
    (folder / "results" / "benchmarks").mkdir(parents=True)
    (folder / "results" / "batch-size-gap.json").write_text(json.dumps(results()))
    rows = [{"name": "a|b", "cpu_ratio": 12.3456}, {"name": "c", "note": {"odd": 1}}]
    figures = {"environment": {"torch": "2"}, "rows": rows, "seconds": 0.5}
    (folder / "results" / "benchmarks" / "some_case.json").write_text(json.dumps(figures))
    with (folder / "conf.py").open("a") as settings:
        settings.write(PLAIN_THEME)
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
            "charts": [
                {"kind": "line", "title": "Old", "series": [{"name": "a", "x": [1], "y": [2]}]},
            ],
        },
        "trials": [{"parameters": {}, "seed": 0, "status": "done", "record": {}}],
        "versions": {"mindgap": ["0"]},
        "cost": {"wall_seconds": 1.0, "cpu_seconds": 1.0},
        "date": "2024-01-01T00:00:00",
    }


@pytest.fixture(scope="module")
def built(source: Path) -> Path:
    """The pages as HTML; the code of the pages per user has a test of its own and is not run here."""
    return build(source, "-D", "run_snippets=0")


def build(source: Path, *options: str) -> Path:
    """Build pages without internet, with warnings as errors."""
    target = source.parent / "html"
    words = ["-W", "--keep-going", "-q", "-b", "html", *options, str(source), str(target)]
    nowhere = "http://127.0.0.1:9"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words],
        env={**os.environ, "http_proxy": nowhere, "https_proxy": nowhere},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


def page(built: Path, name: str) -> str:
    return (built / name).read_text(encoding="utf-8")


# One test per family and not per entry: two workers that share them would build the pages twice.
@pytest.mark.parametrize("family", FAMILIES)
def test_every_entry_has_a_page(built: Path, family: str) -> None:
    for path, entry in ENTRIES.items():
        if entry.family == family:
            check_page(built, path, entry)


def check_page(built: Path, path: str, entry: Entry) -> None:
    text = page(built, f"catalog/{path}.html")
    headings = ["From Python", "From the command line", "Source"]
    if entry.family != "dataset":
        headings += ["Formula", "How to read it", "What it assumes", "References"]
        assert '<div class="formula"><math' in text, path
    if entry.family != "function":
        headings += ["Settings", "At a glance"]
    for heading in headings:
        assert f">{heading}<" in text, (path, heading)
    assert all(key in text for key in entry.cites), path
    assert f'href="{path}.html"' in page(built, family_page(entry)), "a link on its family's page"


def family_page(entry: Entry) -> str:
    plurals = {"diagnosis": "diagnoses", "remedy": "remedies", "study": "studies"}
    return f"catalog/{plurals.get(entry.family, entry.family + 's')}.html"


def test_topics_are_headings(built: Path) -> None:
    for entry in ENTRIES.values():
        heading = re.compile(rf"<h2>{re.sub(r'[^a-z]', '.', entry.topic)}", re.I)
        assert not entry.topic or heading.search(page(built, family_page(entry))), entry.name


@pytest.mark.parametrize("family", sorted({cls.family for cls in catalog().values()}))
def test_what_a_page_tells_to_type_is_right(source: Path, built: Path, family: str) -> None:
    for name in catalog(family):
        check_what_to_type(source, name)


def check_what_to_type(source: Path, name: str) -> None:
    cls = catalog()[name]
    text = (source / "catalog" / cls.family / f"{name}.md").read_text(encoding="utf-8")
    python, command = (
        re.search(rf"````{kind}\n(.*?)````", text, re.S)[1] for kind in ("python", "bash")
    )
    imported = next(node for node in ast.parse(python).body if isinstance(node, ast.ImportFrom))
    names = {}
    exec(ast.unparse(imported), names)
    assert names[imported.names[0].name] is cls, name
    made = next(node for node in ast.walk(ast.parse(python)) if _calls(node, cls.__name__))
    assert eval(ast.unparse(made), names) == cls(), name
    if cls.family == "remedy":
        assert parse_remedy(command.split("--remedy ")[1].split()[0]) == cls(), name


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def test_references_list_everything(built: Path) -> None:
    text = page(built, "catalog/bibliography.html")
    assert all(f'id="ref-{key.replace("_", "-")}"' in text for key in bibliography())


def test_parts_are_taken_from_the_package(built: Path) -> None:
    assert all(f"usage: mindgap {name}" in page(built, "cli.html") for name in COMMANDS)
    names = [entry.name for entry in entries("dataset")]
    assert all(f">{name}</span>" in page(built, "data.html") for name in names)


@pytest.mark.parametrize("package", ["data", "nets", "sampling", "runs", "core"])
def test_the_api_page_describes_every_public_name_once(built: Path, package: str) -> None:
    text = page(built, "api.html")
    for name in importlib.import_module(f"mindgap.{package}").__all__:
        homes = (f"mindgap.{package}", "mindgap")
        found = [home for home in homes if f'id="{home}.{name}"' in text]
        assert len(found) == 1, (name, found)


def test_the_api_page_describes_what_mindgap_offers(built: Path) -> None:
    text = page(built, "api.html")
    for name in mindgap.__all__:
        package = isinstance(getattr(mindgap, name), ModuleType)
        assert package or f'id="mindgap.{name}"' in text, name
    assert 'id="mindgap.integrations.lightning.RemedyCallback"' in text


def test_saved_results_and_benchmarks_are_shown(built: Path) -> None:
    study = page(built, "catalog/results/batch-size-gap.html")
    assert "0.1235" in study
    assert 'class="plot" id="plot-chart-0" role="img" aria-label="Old. Line chart' in study
    assert "plotly.min.js" in study
    assert "plotly.min.js" not in page(built, "index.html")
    assert (built / "_static" / "plotly.min.js").stat().st_size > 1e6
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
    assert len(list(built.rglob("*.html"))) > len(ENTRIES)
    check_fetches(built)


def test_neither_does_the_theme(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    ignored = shutil.ignore_patterns("_build", "catalog", "decisions", "results", "*.md")
    shutil.copytree(DOCS, source, ignore=ignored)
    (source / "index.md").write_text("# One page\n\n$x^2$\n")
    with (source / "conf.py").open("a") as settings:
        settings.write('\nextensions = ["myst_parser", "mathml"]\n')
    html = build(source)
    assert "furo" in page(html, "index.html")
    check_fetches(html)


def check_fetches(built: Path) -> None:
    for path in built.rglob("*.html"):
        seen = Fetches()
        seen.feed(path.read_text(encoding="utf-8"))
        assert seen.found
        assert not [address for address in seen.found if re.match(r"(https?:)?//", address)], path
    styles = "".join(path.read_text(encoding="utf-8") for path in built.rglob("*.css"))
    assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", styles)


def extension(source: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code that imports the extension, whose module names are too common for this process."""
    path = os.pathsep.join([str(source / "_ext"), *sys.path])  # the package of this process
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )


def test_writing_again_and_writing_without_results(
    source: Path, built: Path, tmp_path: Path
) -> None:
    """A second time nothing changes and stale pages go; without saved results the pages say so."""
    stale = source / "catalog" / "measure" / "gone.md"
    stale.write_text("# Gone\n")
    before = {
        path: path.stat().st_mtime_ns for path in source.rglob("catalog/**/*.md") if path != stale
    }
    code = f"import catalog; catalog.write({str(source)!r}); catalog.write({str(tmp_path)!r})"
    done = extension(source, code)
    assert done.returncode == 0, done.stderr
    assert not stale.exists()
    assert {path: path.stat().st_mtime_ns for path in source.rglob("catalog/**/*.md")} == before
    assert "make reproduce" in (tmp_path / "catalog" / "results.md").read_text()
    assert "no saved benchmarks" in (tmp_path / "catalog" / "parts" / "benchmarks.md").read_text()


def test_a_formula_that_cannot_be_drawn_ends_the_build(source: Path) -> None:
    done = extension(source, r"import mathml; mathml.mathml(r'\nosuch x')")
    assert done.returncode
    assert "nosuch" in done.stderr
