"""Somebody else's package with one file each for a measure, a study, a remedy and a data set."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MEASURE = '''
"""The largest weight."""

from mindgap.core import Estimate, Measure, Surface, option


class LargestWeight(Measure):
    r"""Largest absolute weight of the model.

    Formula: $c \\cdot \\max_i |w_i|$

    Reading: Large means that a single connection dominates; the number says little about the rest.

    Assumes: Nothing.

    >>> LargestWeight(factor=2.0)
    LargestWeight(factor=2.0)
    """

    method = ("E9",)
    cites = ("jiang2020fantastic",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})

    factor: float = option(1.0, help="a factor", above=0)

    def compute(self, subject):
        value = self.factor * max(float(w.detach().abs().max()) for w in subject.model.parameters())
        grid = (0.0, 0.5, 1.0)
        heights = tuple(tuple(value * x * y for x in grid) for y in grid)
        chart = Surface(x=grid, y=grid, z=heights, title="A landscape of shoes", z_label="size")
        return Estimate(value=value, charts=(chart,))
'''
STUDY = '''
"""Coin flips."""

import random

from mindgap.core import Study, Table, Trial, option


class CoinFlips(Study):
    r"""The share of heads among a few flips of a fair coin.

    Formula: $\\frac{1}{n} \\sum_i x_i$

    Reading: Far from one half means that there were few flips, or that the coin is bent.

    Assumes: A fair coin.

    >>> len(CoinFlips(seeds=3).trials())
    3
    """

    method = ("E9",)
    cites = ("jiang2020fantastic",)

    seeds: int = option(5, help="number of trials", low=1)

    def trials(self):
        return [Trial(parameters={}, seed=seed) for seed in range(self.seeds)]

    def run(self, trial):
        source = random.Random(trial.seed)
        return {"heads": sum(source.random() < 0.5 for _ in range(100)) / 100}

    def summarize(self, records):
        rows = tuple((trial.seed, record["heads"]) for trial, record in records)
        return Table(title="Heads", columns=("seed", "heads"), rows=rows)

    def tiny(self):
        return self.replace(seeds=2)
'''
REMEDY = '''
"""Slower steps."""

from mindgap.core import Remedy, option


class SlowSteps(Remedy):
    r"""Divides the learning rate.

    Formula: $\\eta \\leftarrow \\frac{\\eta}{1 + s}$

    Reading: Slower steps diverge less and take longer.

    Assumes: Nothing.

    >>> SlowSteps(slowness=3.0).on
    True
    """

    method = ("E9",)
    cites = ("pascanu2013difficulty",)
    strength = "slowness"
    treats = frozenset({"divergence"})

    slowness: float = option(1.0, help="how much slower; 0 is off", low=0)

    def prepare(self, recipe, data):
        return recipe.replace(learning_rate=recipe.learning_rate / (1 + self.slowness))
'''
DATA = '''
"""Two lines."""

import torch

from mindgap.data import DataSet, dataset


@dataset("two-lines")
def two_lines(size: int = 40, seed: int = 0) -> DataSet:
    """Points on two parallel lines.

    Args:
        size: Number of training samples; the test part has as many.
        seed: Seed of the points.
    """
    source = torch.Generator().manual_seed(seed)
    labels = torch.arange(2 * size) % 2
    points = torch.stack([torch.rand(2 * size, generator=source), labels.float()], 1)
    return DataSet(
        "two-lines", points[:size], labels[:size], points[size:], labels[size:],
        classes=("low", "high"),
    )
'''
FILES = {"largest_weight": MEASURE, "coin_flips": STUDY, "slow_steps": REMEDY, "two_lines": DATA}
ENTRIES = {
    "largest-weight": ("measure", "largest_weight.LargestWeight"),
    "coin-flips": ("study", "coin_flips.CoinFlips"),
    "slow-steps": ("remedy", "slow_steps.SlowSteps"),
    "two-lines": ("dataset", "two_lines.two_lines"),
}
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a package of four files is installed."""
    site = tmp_path_factory.mktemp("site")
    package, info = site / "shoe_sizes", site / "shoe_sizes-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("")
    for name, text in FILES.items():
        (package / f"{name}.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shoe-sizes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mindgap.specs]\nshoe_sizes = shoe_sizes\n")
    return {**os.environ, "PYTHONPATH": str(site)}


def run(environment: dict[str, str], *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_found_by_the_api_and_list(plugged: dict[str, str]) -> None:
    code = (
        "import mindgap\n"
        "print(mindgap.find('largest-weight')(factor=2.0), mindgap.find('slow_steps')())\n"
        "print(mindgap.data.load('two-lines', size=6))\n"
        "study = mindgap.find('coin-flips', 'study')().tiny()\n"
        "print(mindgap.sweep(study, store=':memory:', workers=1, progress=False))\n"
        "print(mindgap.explain('slow-steps').treats)\n"
        "from mindgap.cli import main\n"
        "main(['list', '--json'])"
    )
    *api, listed = run(plugged, "-c", code).split("\n", 4)
    assert api == [
        "LargestWeight(factor=2.0) SlowSteps(slowness=1.0)",
        "DataSet('two-lines': classification, 6 train, 6 test, inputs (2,) float32, 2 classes)",
        "coin-flips: 2 done, 0 resumed, 0 failed, 0 to run",
        "('divergence',)",
    ]
    rows = {row["name"]: row for row in json.loads(listed)}
    for name, (family, source) in ENTRIES.items():
        assert rows[name]["family"] == family
        assert rows[name]["topic"] == "shoe_sizes"
        assert rows[name]["source"] == f"shoe_sizes.{source}"
    assert rows["largest-weight"]["methods"] == ["E9"]
    assert rows["largest-weight"]["citations"] == ["Jiang et al. 2020"]


@pytest.fixture(scope="module")
def page(plugged: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a network trained on the data set with the remedy, with the measure in it."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    words = ("--data", "two-lines", "--remedy", "slow-steps:slowness=0.5", "--epochs", "20", "-q")
    run(plugged, "-m", "mindgap", "train", *words, "--width", "8", "--report", str(path))
    return path


def test_found_by_the_report(page: Path) -> None:
    text = page.read_text()
    assert "Largest weight" in text
    assert "A landscape of shoes" in text
    assert "two-lines" in text


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium on the PATH")
def test_its_surface_is_drawn_in_a_browser(page: Path, tmp_path: Path) -> None:
    words = [BROWSER, "--headless", "--no-sandbox", "--virtual-time-budget=8000", "--disable-gpu"]
    words += [f"--user-data-dir={tmp_path}", "--enable-logging=stderr", "--dump-dom", page.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    figure = done.stdout.partition("A landscape of shoes")[2].partition("</figure>")[0]
    assert "js-plotly-plot" in figure or "<svg" in figure
    # Without a graphics card Chromium also remarks that it draws slowly.
    said = [line.lower() for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not [line for line in said if "error" in line or "uncaught" in line]


def test_found_by_the_contracts(plugged: dict[str, str]) -> None:
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-n0", "-q", "-k", " or ".join(ENTRIES))
    out = run(plugged, *words, "tests/test_contracts.py", "tests/data/test_contracts.py")
    assert int(out.split(" passed")[0].split()[-1]) >= 45
    assert "failed" not in out


def test_a_broken_plug_in_breaks_nothing_else(plugged: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(plugged["PYTHONPATH"], tmp_path / "site")
    (tmp_path / "site" / "shoe_sizes" / "largest_weight.py").write_text("raise OSError('worn')\n")
    broken = {**plugged, "PYTHONPATH": str(tmp_path / "site")}
    code = "import sys\nfrom mindgap.cli import main\nmain(['list', '--family', 'measure'])\n"
    out = run(broken, "-W", "ignore", "-c", f"{code}sys.exit(main(['doctor']))", code=1)
    assert "parameter-norm" in out
    assert "worn" in out
