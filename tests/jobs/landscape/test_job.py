"""mindgap.landscape: grids, trajectories, eigenvectors and paths, with files of all kinds."""

from __future__ import annotations

import copy
import csv
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from mindgap import landscape
from mindgap.core import InputError, NotFiniteError, Recipe, Subject
from mindgap.jobs.landscape.verdict import judge_landscape
from mindgap.nets import MLP
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted


def recipe(**changes: object) -> Recipe:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(120, 2, generator=source)
    y = (x[:, 0] * x[:, 1] > 0).long()
    settings = {"epochs": 30, "learning_rate": 0.02, "batch_size": 40, **changes}
    settings.setdefault("model", lambda: MLP((2, 16, 2), norm="batch"))
    return Recipe(
        train=(x[:80], y[:80]),
        test=(x[80:], y[80:]),
        name="corners",
        **settings,
    )


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit(recipe())


@pytest.fixture(scope="module")
def second() -> Fitted:
    return fit(recipe(), seed=1)


def test_a_random_plane_has_the_model_in_its_middle(fitted: Fitted) -> None:
    before = copy.deepcopy(fitted.model.state_dict())
    found = landscape(fitted, points=5)
    assert found.losses.shape == (5, 5)
    loss = fitted.subject().mean_loss()
    assert found.center == pytest.approx(loss, rel=1e-5)
    assert float(found.losses[2, 2]) == pytest.approx(loss, rel=1e-5)
    assert float(found.x[0]) == -1
    assert found.settings["Batch normalization"] == "running statistics as they are"
    assert [chart.kind for chart in found.charts()] == ["surface", "heatmap", "line"]
    assert found.name == "corners"
    after = fitted.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_settings_are_used(fitted: Fitted) -> None:
    usual = landscape(fitted, points=3)
    others = [
        landscape(fitted, points=3, **changes)  # type: ignore[arg-type]
        for changes in (
            {"normalize": "layer"},
            {"normalize": "none"},
            {"span": 0.5},
            {"seed": 1},
            {"which": "test"},
            {"samples": 10},
            {"batch_norm": "recomputed"},
        )
    ]
    assert not any(torch.allclose(usual.losses, other.losses) for other in others)
    assert "10 training" in others[5].settings["Data"]
    assert "recomputed" in others[6].settings["Batch normalization"]
    repeated = landscape(fitted, points=3)
    assert torch.equal(usual.losses, repeated.losses)


def test_a_line(fitted: Fitted) -> None:
    found = landscape(fitted, points=5, dimensions=1)
    assert found.losses.shape == (1, 5)
    assert found.not_convex is None
    assert [chart.kind for chart in found.charts()] == ["line"]
    with pytest.raises(InputError, match="two directions"):
        found.surface()
    assert torch.equal(found.losses[0], landscape(fitted, points=5).losses[2])


def test_eigenvectors_rise_as_their_eigenvalues_say() -> None:
    # Without ReLU: a step that rounding leaves alone would cross the bend of a unit.
    smooth = fit(recipe(model=lambda: MLP((2, 16, 2), activation="tanh", norm="batch")))
    found = landscape(smooth, directions="hessian", points=3, span=1e-2)
    plane = found.losses - found.center
    step = float(found.x[-1])
    for name, rise in (("first", plane[1, 0] + plane[1, 2]), ("second", plane[0, 1] + plane[2, 1])):
        assert float(rise) / step**2 == pytest.approx(found.facts[f"{name} eigenvalue"], rel=0.01)


def test_a_trajectory_ends_at_the_model(fitted: Fitted) -> None:
    found = landscape(fitted, directions="trajectory", points=5)
    (trail,) = found.trails
    assert len(trail.losses) == fitted.epochs + 1
    assert trail.coordinates[-1].abs().max() < 1e-6
    assert float(trail.losses[-1]) == pytest.approx(found.center)
    assert float(trail.losses[0]) > 2 * float(trail.losses[-1])
    low, high = trail.coordinates.min(0).values, trail.coordinates.max(0).values
    assert float(found.x[0]) < float(low[0]) < float(high[0]) < float(found.x[-1])
    given = landscape(
        fitted, points=3, trajectory=[fitted.initial, fit(recipe(epochs=5)).model.state_dict()]
    )
    assert len(given.trails[0].losses) == 3
    assert found.charts()[0].paths  # type: ignore[attr-defined]


def test_two_minima(fitted: Fitted, second: Fitted) -> None:
    found = landscape(fitted, to=second, points=9, steps=200)
    numbers = found.numbers()
    assert numbers["barrier on the bent path"] < numbers["barrier on the line"]
    line, bent = found.trails
    assert torch.allclose(line.coordinates[[0, -1]], bent.coordinates[[0, -1]], atol=1e-5)
    assert float(line.coordinates[-1, 0]) == pytest.approx(found.facts["distance of the minima"])
    assert "recomputed" in found.settings["Batch normalization"]
    assert judge_landscape(found).label.startswith("Connected")
    assert [chart.kind for chart in found.charts()] == ["surface", "heatmap", "line", "line"]


def test_files(fitted: Fitted, tmp_path: Path) -> None:
    found = landscape(fitted, points=5, directions="trajectory")
    with found.save(tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    grid = [row for row in rows if row["part"] == "grid"]
    assert [float(row["loss"]) for row in grid] == found.losses.flatten().tolist()
    assert [float(row["x"]) for row in grid[:5]] == found.x.tolist()
    assert len(rows) - 25 == fitted.epochs + 1
    data = json.loads(found.save(tmp_path / "a.json").read_text())
    assert data["losses"] == found.losses.tolist()
    assert found.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = found.save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Loss landscape of corners" in page
    with pytest.raises(InputError, match="must end in"):
        found.save(tmp_path / "a.pdf")


def test_a_model_off_the_bottom_is_told(fitted: Fitted) -> None:
    model = copy.deepcopy(fitted.model)
    subject = Subject(model, "cross_entropy", fitted.recipe.train)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(-1.0)
    verdict = judge_landscape(landscape(subject, points=5, span=2.0))
    assert verdict.label == "Not at the bottom"
    assert judge_landscape(landscape(fitted, points=5)).label == "At the bottom of this slice"


def test_losses_that_overflow_leave_holes() -> None:
    x = torch.ones(4, 1)
    subject = Subject(nn.Linear(1, 1), "mse", (x, x))
    found = landscape(subject, points=5, span=1e30, normalize="none")
    assert found.not_convex is None
    assert None in found.to_dict()["losses"][0]
    str(found)


def test_samples_of_one_class() -> None:
    x, y = torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])
    subject = Subject(nn.Linear(2, 2), "cross_entropy", (x, y), (x[::2], y[::2]))
    for settings in ({"which": "test"}, {"samples": 1}):
        assert landscape(subject, points=3, **settings).losses.isfinite().all()


def test_what_cannot_be_drawn_is_refused(fitted: Fitted) -> None:
    subject = Subject(fitted.model, "cross_entropy", fitted.recipe.train)
    with pytest.raises(InputError, match="recipe"):
        landscape(subject, directions="trajectory")
    with pytest.raises(InputError, match="same twice"):
        landscape(fitted, to=fitted)
    with pytest.raises(InputError, match="same network"):
        landscape(fitted, to=Subject(MLP((2, 3, 2)), "cross_entropy", fitted.recipe.train))
    with pytest.raises(InputError, match="span"):
        landscape(fitted, span=0.0)
    with pytest.raises(InputError, match="points"):
        landscape(fitted, points=2)
    for weight in (torch.nan, 1e38):  # overflows differ from batch to batch
        broken = copy.deepcopy(fitted.model)
        torch.nn.init.constant_(broken[1].weight, weight)
        with pytest.raises(NotFiniteError, match="must be finite numbers"):
            landscape(Subject(broken, "cross_entropy", fitted.recipe.train))
    noisy = copy.deepcopy(fitted.model)
    noisy.register_forward_hook(lambda _, __, output: output + torch.rand_like(output))
    with pytest.raises(InputError, match="outputs that depend"):
        landscape(Subject(noisy, "cross_entropy", fitted.recipe.train))
