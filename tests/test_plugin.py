"""A measure added as one file of somebody else's package is found everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MEASURE = '''
"""The largest weight."""

from mindgap.core.measure import Measure
from mindgap.core.spec import option


class LargestWeight(Measure):
    r"""Largest absolute weight of the model.

    Formula: $c \\cdot \\max_i |w_i|$

    Reading: Large means that a single connection dominates; a single number that says little about the rest.

    Assumes: Nothing.

    >>> LargestWeight().factor
    1.0
    """

    method = ("E9",)
    cites = ("jiang2020fantastic",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})

    factor: float = option(1.0, help="a factor", above=0)

    def compute(self, subject):
        return self.factor * max(float(weight.detach().abs().max()) for weight in subject.model.parameters())
'''


@pytest.fixture
def plugged(tmp_path: Path) -> dict[str, str]:
    """An environment in which a package with one measure is installed."""
    package = tmp_path / "site" / "shoe_sizes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "largest_weight.py").write_text(MEASURE)
    info = tmp_path / "site" / "shoe_sizes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shoe-sizes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mindgap.specs]\nshoe_sizes = shoe_sizes\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "site")}


def run(environment: dict[str, str], *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_found_by_api_list_and_explain(plugged: dict[str, str]) -> None:
    found = run(plugged, "-c", "import mindgap; print(mindgap.find('largest-weight')(factor=2.0))")
    assert found.strip() == "LargestWeight(factor=2.0)"
    rows = {row["name"]: row for row in json.loads(run(plugged, "-m", "mindgap", "list", "--json"))}
    assert rows["largest-weight"]["family"] == "measure"
    assert rows["largest-weight"]["methods"] == ["E9"]
    assert rows["largest-weight"]["source"] == "shoe_sizes.largest_weight.LargestWeight"
    assert "single connection dominates" in run(
        plugged, "-m", "mindgap", "explain", "largest-weight"
    )


def test_found_by_report(plugged: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch, mindgap\n"
        "def make_subject():\n"
        "    x = torch.arange(12.0).view(6, 2)\n"
        "    return mindgap.Subject(torch.nn.Linear(2, 2), 'cross_entropy', (x, torch.arange(6) % "
        "2))\n"
    )
    page = tmp_path / "report.html"
    run(
        plugged,
        "-m",
        "mindgap",
        "examine",
        f"{tmp_path / 'mine.py'}:make_subject",
        "--html",
        str(page),
        "-q",
    )
    assert "largest-weight" in page.read_text() or "Largest weight" in page.read_text()


def test_found_by_contracts(plugged: dict[str, str]) -> None:
    out = run(
        plugged,
        "-m",
        "pytest",
        "tests/test_contracts.py",
        "-k",
        "largest-weight",
        "-p",
        "no:cacheprovider",
        "-n0",
    )
    assert int(out.split(" passed")[0].split()[-1]) >= 30
    assert "failed" not in out


def test_a_broken_plug_in_does_not_take_the_house_down(plugged: dict[str, str]) -> None:
    site = Path(plugged["PYTHONPATH"])
    (site / "shoe_sizes" / "largest_weight.py").write_text("raise RuntimeError('worn out')\n")
    assert "parameter-norm" in run(plugged, "-m", "mindgap", "list")
    out = run(plugged, "-m", "mindgap", "doctor", code=1)
    assert "worn out" in out
