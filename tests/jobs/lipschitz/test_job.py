"""The job `lipschitz`: its numbers agree with each other, with an attack, and with its files."""

from __future__ import annotations

import csv
import functools
import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from mindgap import Subject, fit, lipschitz
from mindgap.core import InputError
from mindgap.jobs.lipschitz.answer import Lipschitz
from mindgap.measures import LipschitzLowerBound, LipschitzUpperBound
from mindgap.ops.attacks.descent import pgd
from mindgap.ops.attacks.threat import Threat
from mindgap.ops.attacks.victim import Victim
from mindgap.studies.diagnoses.healthy import healthy_recipe

SMALL = {"samples": 60, "steps": 8, "ascent": 10, "starts": 4}


@functools.cache
def table() -> Subject:
    return fit(healthy_recipe("table", seed=1), seed=1).subject()


@functools.cache
def answer() -> Lipschitz:
    return lipschitz(table(), **SMALL)


def test_bounds_are_in_order() -> None:
    found = answer()
    assert found.upper is not None
    assert found.data <= found.lower <= found.upper <= found.product * (1 + 1e-9)
    assert found.method == "tight"
    assert found.ratio == pytest.approx(found.upper / found.lower)


def test_the_curve_starts_at_the_accuracy_and_falls() -> None:
    found = answer()
    assert found.accuracy[0] == pytest.approx(found.clean, abs=1e-9)
    assert list(found.accuracy) == sorted(found.accuracy, reverse=True)
    assert found.accuracy[-1] == 0


def test_no_attack_breaks_what_is_certified() -> None:
    subject, found = table(), answer()
    places = torch.tensor([row["sample"] for row in found.samples])
    radii = torch.tensor([row["certified radius"] for row in found.samples])
    inputs = subject.test.take(places).inputs[0]
    victim = Victim.of(subject.model, subject.loss, subject.task)
    threat = Threat(norm="l2", epsilon=0.999 * radii, low=-math.inf, high=math.inf)
    attacked = pgd(victim, inputs, subject.targets("test")[places], threat, steps=20)
    assert not bool((attacked.broken & (radii > 0)).any())


def test_a_model_without_a_bound_says_why() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 2))
    x, y = torch.randn(8, 3, 4), torch.arange(8) % 2
    subject = Subject(model, "cross_entropy", (x, y))
    found = lipschitz(subject, steps=2, ascent=2)
    assert found.upper is None
    assert "No upper bound" in str(found)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["upper"] is None
    result = LipschitzUpperBound()(subject)
    assert result.value is None
    assert "Lipschitz constant" in result.reason


def test_measures_equal_brute_force_on_a_linear_model() -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    subject = Subject(model, "cross_entropy", (torch.randn(9, 5), torch.arange(9) % 3))
    exact = float(torch.linalg.matrix_norm(model.weight.detach().double(), 2))
    assert float(LipschitzLowerBound()(subject)) == pytest.approx(exact, rel=1e-9)
    assert exact <= float(LipschitzUpperBound()(subject)) <= exact * (1 + 1.1e-4)


def test_regressions_have_bounds_and_no_radii() -> None:
    x = torch.randn(12, 3)
    found = lipschitz(Subject(nn.Linear(3, 1), "mse", (x, x[:, :1])), steps=2, ascent=2)
    assert found.clean is None
    assert not found.samples
    assert found.csv() == "sample,certified radius\n"


def test_files(tmp_path: Path) -> None:
    found = answer()
    page = found.save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.index("The Lipschitz constant is between") < page.index("<h2>Certified accuracy")
    assert json.loads(found.save(tmp_path / "a.json").read_text())["upper"] == found.upper
    rows = list(csv.DictReader(found.save(tmp_path / "a.csv").read_text().splitlines()))
    assert len(rows) == len(found.samples)
    with pytest.raises(InputError, match="html"):
        found.save(tmp_path / "a.txt")


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="radii"):
        lipschitz(table(), radii=[])
    with pytest.raises(InputError, match="radii"):
        lipschitz(table(), radii=[-1.0])
    with pytest.raises(InputError, match="starts"):
        lipschitz(table(), starts=0)


def test_no_number_is_rounded_in_its_favor() -> None:
    found = answer()
    assert found.upper is not None
    words = found.verdict.headline.rstrip(".").split()
    assert float(words[-3]) <= found.lower <= found.upper <= float(words[-1])
