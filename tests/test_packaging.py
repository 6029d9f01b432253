"""The wheel and the sdist, built without the internet and run outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="the build backend is not installed: pip install hatchling")
pytest.importorskip("build", reason="the package build is not installed: pip install build")
ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "mindgap"


def run(folder: Path, *words: str | Path, path: Path | None = None) -> str:
    """Run Python in a folder outside the checkout, with an installation on its path if given."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is built from the sdist alone."""
    folder = tmp_path_factory.mktemp("dist")
    run(folder, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def installed(built: Path, pattern: str, folder: Path) -> Path:
    (archive,) = built.glob(pattern)
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--no-compile", "--quiet")
    run(folder, "-m", "pip", "install", *offline, "--target", folder / "site", archive)
    return folder / "site"


def test_the_wheel_writes_a_report_outside_the_checkout(built: Path, tmp_path: Path) -> None:
    site = installed(built, "*.whl", tmp_path)
    program = (
        "import sys, mindgap.cli; print(mindgap.__file__, flush=True); "
        "sys.exit(mindgap.cli.main(sys.argv[1:]))"
    )
    words = ("train", "--epochs", "1", "--quiet", "--report", "page.html")
    told = run(tmp_path, "-c", program, *words, path=site)
    assert Path(told.splitlines()[0]).is_relative_to(site)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "plotly.js v" in page
    assert "<math" in page


def test_the_sdist_installs_and_runs_outside_the_checkout(built: Path, tmp_path: Path) -> None:
    site = installed(built, "*.tar.gz", tmp_path)
    told = run(tmp_path, "-m", "mindgap", "--version", path=site)
    assert told.split()[-1] == metadata.version("mindgap")


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert held == {path.relative_to(PACKAGE.parent).as_posix() for path in files}


def test_a_plain_installation_brings_what_the_report_needs(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    needed = [
        line.removeprefix("Requires-Dist: ")
        for line in archive.read(name).decode().splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert {line.split(">")[0] for line in needed} == {
        "jinja2",
        "latex2mathml",
        "numpy",
        "plotly",
        "scipy",
        "torch",
        "tqdm",
    }


def test_the_sdist_has_no_results_and_no_rubbish(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"pyproject.toml", "README.md", "LICENSE", "src/mindgap/py.typed"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("docs/_build")]
