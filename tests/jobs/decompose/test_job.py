"""The job `decompose`: sources, the recipe's own data, files, and what is refused."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mindgap import Recipe, decompose
from mindgap.cli import main
from mindgap.core import InputError, MindgapError
from mindgap.data.sources import drawn, moon_logits, source
from mindgap.jobs.decompose.answer import Decomposition
from mindgap.jobs.decompose.job import _own
from mindgap.nets import MLP
from mindgap.training.decomposition.runs import Plan

FEW = {
    "draws": 3,
    "restarts": 1,
    "references": 2,
    "large": 300,
    "pool": 300,
    "steps": 40,
    "polish": 4,
}
WORDS = [word for name, value in FEW.items() for word in (f"--{name}", str(value))]


def recipe(**changes: object) -> Recipe:
    data = torch.zeros(20, 1), torch.zeros(20, 1)
    fields = {"loss": "mse", "epochs": 10, "batch_size": 10, "learning_rate": 0.02}
    return Recipe(model=lambda: MLP((1, 4, 1), "tanh"), train=data, **(fields | changes))


@functools.cache
def curve() -> Decomposition:
    return decompose(recipe(name="a net"), "heteroscedastic", sizes=[10, 40], **FEW)


def test_terms_add_up_at_every_size() -> None:
    for row in curve().rows:
        assert math.fsum(t.value for t in row.whole) == pytest.approx(row.risk.value, abs=1e-12)
        assert math.fsum(t.value for t in row.excess) == pytest.approx(row.excess_risk, abs=1e-12)
    assert [row.size for row in curve().rows] == [10, 40]


def test_the_answer_says_what_is_estimated() -> None:
    text = str(curve())
    assert "upper estimate" in text
    assert "below zero" in text
    assert "The best predictor is unknown" not in text
    assert curve().verdict.headline.startswith("With 40 training samples the largest term is")


def test_it_is_repeatable() -> None:
    again = decompose(recipe(name="a net"), "heteroscedastic", sizes=[10, 40], **FEW)
    assert again.to_dict() == curve().to_dict()


def test_files_hold_the_numbers(tmp_path: Path) -> None:
    found = json.loads(curve().save(tmp_path / "a.json").read_text())
    assert found["rows"][0]["whole"][0]["name"] == "generalization"
    page = curve().save(tmp_path / "a.html").read_text()
    assert "What this does not say" in page
    assert "upper estimate" in page
    with pytest.raises(InputError, match=r"\.html or \.json"):
        curve().save(tmp_path / "a.csv")


def own_data(size: int = 300, **changes: object) -> Recipe:
    x = torch.linspace(-1, 1, size)[
        torch.randperm(size, generator=torch.Generator().manual_seed(0))
    ]
    data = x[:, None], torch.sin(3 * x)[:, None]
    return recipe(**changes).replace(train=data, test=(data[0][::3], data[1][::3]))


def test_own_data_say_what_cannot_be_estimated() -> None:
    found = decompose(own_data(), **FEW)
    assert found.rows[0].size == 15
    assert found.rows[0].excess_risk is None
    assert [term.name for term in found.rows[0].excess] == ["estimation", "optimization"]
    assert found.plan.large == 300 - 3 * 15
    text = str(found)
    assert "cannot be separated" in text
    assert "neither estimation nor approximation error can be estimated" in text


def test_own_data_are_disjoint_and_judged_on_test_data() -> None:
    plan = own_data().replace(test=(torch.full((30, 1), 7.0), torch.zeros(30, 1)))
    made, spent = _own(plan, [15], Plan(**FEW))
    pool, *parts = made.samples([spent.pool, spent.large, 15, 15, 15], 0)
    assert bool((pool[0] == 7.0).all())
    assert spent.large == 300 - 45
    assert len(torch.cat([x for x, _ in parts]).unique()) == 300


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": []}, "at least one number"),
        ({"sizes": [1]}, "sizes"),
        ({"source": "nothing"}, "source"),
        ({"source": lambda size, seed: torch.zeros(size)}, "two tensors"),
        ({"source": None}, "test data"),
        ({"draws": 1}, "draws"),
        ({"recipe": own_data(), "source": None, "sizes": [100]}, "smaller sizes"),
        ({"recipe": recipe(task="regression"), "risk": "error"}, "regression"),
    ],
)
def test_bad_input_is_one_sentence(change: dict[str, object], words: str) -> None:
    with pytest.raises(MindgapError, match=words):
        decompose(**({"recipe": recipe(), "source": "heteroscedastic", **FEW} | change))


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["decompose", "--source", "heteroscedastic", "--width", "4", "--epochs", "3"]
    path = tmp_path / "page.html"
    assert main([*words, *WORDS, "--sizes", "10", "--json", "--report", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["size"] == 10
    assert path.exists()
    assert main(["decompose", "-q"]) == 2


@pytest.mark.parametrize("name", ["heteroscedastic", "two-moons", "gaussian-mixture", "teacher"])
def test_sources_cut_disjoint_samples_of_one_world(name: str) -> None:
    made = source(name)
    parts = made.samples([30, 20], 1)
    assert [len(x) for x, _ in parts] == [30, 20]
    rows = torch.cat([x for x, _ in parts])
    assert len(rows.unique(dim=0)) == 50
    again = made.samples([30, 20], 1)
    assert torch.equal(parts[0][0], again[0][0])


def test_known_truths() -> None:
    ((x, y),) = source("heteroscedastic").samples([40_000], 3)
    best = source("heteroscedastic").best(x)
    assert float((best - y).square().mean()) == pytest.approx(31 / 300, rel=0.03)
    ((x, y),) = source("two-moons", noise=0.5).samples([20_000], 3)
    logits = moon_logits(x, 0.5)
    chance = logits.softmax(1)[:, 1]
    for low in (0.1, 0.3, 0.5, 0.7):  # calibrated: of those with chance p, a share p is of class 1
        near = (chance >= low) & (chance < low + 0.2)
        assert float(y[near].double().mean()) == pytest.approx(float(chance[near].mean()), abs=0.05)
    assert source("gaussian-mixture").floors["error"] == pytest.approx(0.066807, abs=1e-6)
    noisy = source("teacher", noise=0.2, widths=(5, 8, 3)).floors
    assert noisy["error"] == 0.2
    entropy = -0.8 * math.log(0.8) - 0.2 * math.log(0.1)
    assert noisy["loss"] == pytest.approx(entropy, abs=1e-12)
    assert source("teacher", task="regression", noise=0.3).floors["loss"] == pytest.approx(0.09)


def test_a_function_is_called_with_seeds_of_its_own() -> None:
    calls = list[int]()

    def draw(size: int, seed: int) -> tuple[Tensor, Tensor]:
        calls.append(seed)
        return torch.zeros(size, 1), torch.zeros(size, 1)

    drawn(draw).samples([3, 3], 0)
    drawn(draw).samples([3, 3], 1)
    assert len(set(calls)) == 4
