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
from mindgap.ops.lipschitz.lower import slopes_of
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


def test_less_time_gives_a_larger_bound_that_holds() -> None:
    found = lipschitz(table(), **SMALL, seconds=0)
    assert answer().upper is not None
    assert found.upper is not None
    assert answer().upper < 0.999 * found.upper
    assert found.lower <= found.upper
    with pytest.raises(InputError, match="seconds must be a number"):
        lipschitz(table(), **SMALL, seconds=-1)


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


@functools.cache
def near() -> Lipschitz:
    return lipschitz(table(), **SMALL, local=3)


def test_balls_have_smaller_constants_and_larger_radii() -> None:
    found = near()
    assert len(found.local) == 3
    assert found.upper is not None
    for row in found.local:
        assert row.slope * (1 - 1e-6) <= row.constant <= found.upper
        assert row.radius is not None
        assert row.wide is not None
        assert 0 < row.wide <= row.radius
    assert any(row.radius > 1.05 * row.wide for row in found.local if row.radius and row.wide)
    assert any(row.constant < 0.95 * found.upper for row in found.local)
    assert found.samples == answer().samples


def test_no_slope_in_a_ball_is_steeper_and_no_prediction_changes() -> None:
    subject, random = table(), torch.Generator().manual_seed(0)
    for row in near().local:
        point = subject.test.take(torch.tensor([row.sample])).inputs[0]
        moves = torch.randn(300, *point.shape[1:], generator=random)
        lengths = moves.flatten(1).norm(dim=1, keepdim=True)
        inside = point + 0.999 * row.ball * torch.rand(300, 1, generator=random) * moves / lengths
        assert float(slopes_of(subject.model, inside).max()) <= row.constant
        assert row.radius is not None
        edge = point + 0.999 * row.radius * moves / lengths
        with torch.no_grad():
            found = subject.model(edge).argmax(1)
        assert bool((found == subject.targets("test")[row.sample]).all())


def test_a_given_ball_serves_all_samples() -> None:
    found = lipschitz(table(), **SMALL, local=4, ball=1e-4)
    assert all(row.ball == 1e-4 for row in found.local)
    for row in found.local:
        assert row.constant == pytest.approx(row.slope, rel=1e-3)
        assert row.radius == pytest.approx(max(row.wide or 0.0, 1e-4 if row.wide else 0.0))


def test_balls_are_in_the_files(tmp_path: Path) -> None:
    found = near()
    page = found.save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<h2>Around samples" in page
    assert "Around samples" not in answer().save(tmp_path / "b.html").read_text(encoding="utf-8")
    rows = list(csv.DictReader(found.csv().splitlines()))
    assert len(rows) == len(found.samples)
    kept = {int(row["sample"]): row for row in rows if row["ball"]}
    assert {row.sample for row in found.local} == set(kept)
    assert all(float(kept[row.sample]["local constant"]) == row.constant for row in found.local)
    assert found.to_dict()["local"][0]["ball"] == found.local[0].ball
    assert "In half of 3 balls" in str(found)


def test_regressions_have_balls_of_a_given_size() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 3)
    model = nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 1))
    subject = Subject(model, "mse", (x, x[:, :1]))
    found = lipschitz(subject, steps=4, ascent=2, local=2, ball=0.1)
    assert [row.radius for row in found.local] == [None, None]
    assert len(found.csv().splitlines()) == 3
    with pytest.raises(InputError, match="ball"):
        lipschitz(subject, steps=4, ascent=2, local=2)
    with pytest.raises(InputError, match="ball"):
        lipschitz(subject, local=2, ball=-1.0)


def test_balls_need_a_network_that_is_bounded_at_once() -> None:
    x = torch.randn(8, 3)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    subject = Subject(model, "cross_entropy", (x, torch.arange(8) % 2))
    with pytest.raises(InputError, match="layer_norm"):
        lipschitz(subject, steps=2, ascent=2, local=1)


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
