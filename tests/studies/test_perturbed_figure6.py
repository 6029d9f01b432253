"""Figures 6 and 7 of Wang et al. 2018: paired arms, the choice on validation data, curves and the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from mindgap.core.errors import DataUnavailableError
from mindgap.core.recipe import Recipe
from mindgap.core.stats import holm, paired
from mindgap.core.study import Trial
from mindgap.data import DataSet
from mindgap.nets import LeNet5, WideResNet
from mindgap.remedies.dropout import Dropout
from mindgap.remedies.perturbed import Perturbed
from mindgap.studies.perturbed import figure6
from mindgap.studies.perturbed.arms import (
    METHODS,
    PLAIN,
    accuracy,
    parts_of,
    trained,
    with_fresh_statistics,
)
from mindgap.studies.perturbed.figure6 import OLD_PLAIN, PerturbedFigure6, arms
from mindgap.studies.perturbed.table import perturbed_table
from mindgap.training.fit import fit


def images(size: int, test_size: int, seed: int) -> DataSet:
    """Invented images whose brightness tells the class."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.arange(size + test_size) % 10
    inputs = (
        torch.rand(size + test_size, 3, 32, 32, generator=random) + targets.view(-1, 1, 1, 1) / 10
    )
    return DataSet("images", inputs[:size], targets[:size], inputs[size:], targets[size:])


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(figure6, "cifar10", images)
    yield
    parts_of.cache_clear()


def test_parts_are_disjoint_small_and_standardized_by_the_train_images() -> None:
    parts = parts_of(images, (40, 20, 30), 3, 2)
    assert {name: tuple(inputs.shape) for name, (inputs, _) in parts.items()} == {
        "train": (40, 3, 16, 16),
        "validation": (20, 3, 16, 16),
        "test": (30, 3, 16, 16),
    }
    together = torch.cat([parts["train"][0], parts["validation"][0]]).flatten(1)
    assert len(together.unique(dim=0)) == 60
    assert torch.allclose(parts["train"][0].mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    data = images(60, 30, 3)
    rows = {tuple(row) for row in data.inputs.mean((2, 3)).mul(1e4).round().tolist()}
    assert len(rows) == 60
    whole = parts_of(images, (40, 20, 30), 3, 1)
    mean = whole["test"][0].view(30, 3, 16, 2, 16, 2).mean((3, 5))
    assert torch.allclose(parts["test"][0], mean, atol=1e-5)
    assert not torch.equal(parts_of(images, (40, 20, 30), 4, 2)["train"][0], parts["train"][0])


def test_every_method_has_as_many_candidates_and_arms_differ_in_one_thing() -> None:
    counts = {method: sum(arm.method == method for arm in arms()) for method in METHODS}
    assert set(counts.values()) == {3}
    by_name = {arm.name: arm for arm in arms()}
    assert len(by_name) == len(arms())
    published = by_name["PerturbedOPT, published"]
    assert published.changes == by_name[OLD_PLAIN].changes
    assert (published.changes["learning_rate"], published.changes["batch_size"]) == (1e-4, 128)
    (remedy,) = published.remedies
    assert isinstance(remedy, Perturbed)
    assert (remedy.eta, remedy.gamma, remedy.epsilon) == (0.01, 10.0, 1e-5)
    assert all(arm.control == PLAIN for arm in arms() if arm.method != "published")


def test_dropout_sits_inside_the_blocks_and_changes_no_first_weight() -> None:
    plain, dropped = (
        Recipe(model=lambda rate=rate: figure6._network(10, 1, dropout=rate), train=([], [])).build(
            7
        )
        for rate in (0.0, 0.3)
    )
    assert all(
        torch.equal(a, b) for a, b in zip(plain.parameters(), dropped.parameters(), strict=True)
    )
    assert [module.p for module in dropped.modules() if isinstance(module, nn.Dropout)] == [0.3] * 3


def test_trained_equals_fit_and_its_last_curve_point_is_the_end() -> None:
    parts = parts_of(images, (40, 20, 30), 1, 2)
    recipe = Recipe(model=lambda: WideResNet(10, 1), train=parts["train"], epochs=3, batch_size=20)
    found = trained(recipe, (Perturbed(gamma=1.0),), 5, parts, every=2, shown=100)
    model = fit(recipe, [Perturbed(gamma=1.0)], seed=5).model.eval()
    for name, (inputs, targets) in parts.items():
        right = (model(inputs).argmax(1) == targets).double().mean()
        assert found["final"][name] == pytest.approx(100 * float(right))
        assert found["curves"][name][-1] == found["final"][name]
    assert found["epochs"] == [1, 2, 3]
    assert found["stopped"] == ""
    short = fit(recipe.replace(epochs=2), [Perturbed(gamma=1.0)], seed=5).model
    assert found["curves"]["test"][1] == accuracy(short, *parts["test"])


def test_a_run_that_diverges_is_told_and_judged() -> None:
    parts = parts_of(images, (40, 20, 30), 1, 1)
    recipe = Recipe(
        model=lambda: LeNet5(channels=3, image_size=32),
        train=parts["train"],
        epochs=4,
        optimizer="sgd",
    )
    found = trained(
        recipe.replace(learning_rate=1e30, batch_size=10), (), 0, parts, every=1, shown=20
    )
    assert found["stopped"].startswith("diverged")
    assert len(found["curves"]["test"]) == len(found["epochs"]) == 4


def test_fresh_statistics_are_those_of_the_inputs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    inputs = torch.randn(1000, 3, 6, 6) * 3 + 1
    before = {name: value.clone() for name, value in model.state_dict().items()}
    other = with_fresh_statistics(model, inputs)
    assert isinstance(other, nn.Sequential)
    maps = model[0](inputs)
    assert torch.allclose(other[1].running_mean, maps.mean((0, 2, 3)), atol=1e-4)
    assert torch.allclose(other[1].running_var, maps.var((0, 2, 3)), rtol=1e-2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not other[1].training
    assert with_fresh_statistics(model[:1], inputs) is None


def test_dropout_of_a_remedy_is_off_when_accuracy_is_taken() -> None:
    model = Dropout(rate=0.5).attach(LeNet5())
    inputs, targets = torch.rand(50, 1, 28, 28), torch.arange(50) % 10
    assert accuracy(model.train(), inputs, targets) == accuracy(model.train(), inputs, targets)


def invented_record(validation: float, test: float, stopped: str = "") -> dict[str, Any]:
    final = {"train": 99.0, "validation": validation, "test": test}
    curves = {name: [value - 1, value] for name, value in final.items()}
    return {
        "epochs": [1, 2],
        "curves": curves,
        "final": final,
        "fresh": test + 2,
        "stopped": stopped,
    }


def invented_runs() -> dict[str, dict[int, Any]]:
    """Test accuracy 50 + arm number (+ seed); validation is best for the middle candidate of every method."""
    runs: dict[str, dict[int, Any]] = {}
    for place, arm in enumerate(arms()):
        best = 10.0 if place in (2, 5, 8) else 0.0
        runs[arm.name] = {
            seed: invented_record(40 + best, 50 + place + seed * (1 + 0.1 * place))
            for seed in range(4)
        }
    del runs[OLD_PLAIN][3]
    return runs


def test_the_table_chooses_on_validation_and_pairs_by_seed() -> None:
    runs = invented_runs()
    table = perturbed_table("title", arms(), runs, ("a note",), fresh=True)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert tuple(rows) == tuple(arm.name for arm in arms())
    chosen = [name for name, row in rows.items() if row["chosen"] == "yes"]
    assert chosen == ["PerturbedOPT, γ = 1", "dropout 0.3", "SAM, ρ = 0.05"]
    tests = []
    for arm in arms():
        if arm.name != arm.control:
            pairs = [
                [runs[name][seed]["final"]["test"] for seed in range(3)]
                for name in (arm.name, arm.control)
            ]
            tests.append((arm.name, paired(*pairs)))
    for (name, test), p_value in zip(tests, holm([test.p_value for _, test in tests]), strict=True):
        assert rows[name]["change"] == pytest.approx(test.difference)
        assert (rows[name]["low"], rows[name]["high"]) == (test.interval.low, test.interval.high)
        assert rows[name]["p (Holm)"] == p_value
    assert rows[PLAIN]["change"] is None
    assert rows[PLAIN]["test"] == pytest.approx(51)  # the seed that one arm lacks is left out
    assert rows[PLAIN]["gap"] == pytest.approx(48)
    assert rows[PLAIN]["fresh"] == pytest.approx(53)
    assert "γ of 1. Its test accuracy minus that of Adam: +2.20 " in table.notes[1]
    assert "minus dropout 0.3: -3.30" in table.notes[1]
    assert "means over 3 seeds" in table.notes[0]


def test_another_test_accuracy_changes_no_choice() -> None:
    runs = invented_runs()
    runs["dropout 0.1"] = {seed: invented_record(40, 99) for seed in range(4)}
    table = perturbed_table("title", arms(), runs, (), fresh=False)
    place = table.columns.index("chosen")
    assert [row[0] for row in table.rows if row[place]] == [
        "PerturbedOPT, γ = 1",
        "dropout 0.3",
        "SAM, ρ = 0.05",
    ]


def test_curves_are_means_with_intervals_and_diverged_runs_are_counted() -> None:
    runs = invented_runs()
    runs["PerturbedOPT, published"][1] |= {"stopped": "diverged: the loss became nan"}
    table = perturbed_table("title", arms(), runs, (), fresh=True)
    assert "PerturbedOPT, published: 1 of 3 runs diverged." in table.notes
    bars, *lines = table.charts
    assert bars.names == ("PerturbedOPT, γ = 1", "dropout 0.3", "SAM, ρ = 0.05")
    assert [chart.y_label for chart in lines] == [
        f"{part} accuracy, %" for part in ("train", "validation", "test")
    ]  # fmt: skip
    series = {row.name: row for row in lines[2].series}
    assert list(series)[:4] == [PLAIN, "PerturbedOPT, γ = 1", "dropout 0.3", "SAM, ρ = 0.05"]
    assert series[PLAIN].x == (1, 2)
    assert series[PLAIN].y == (50, 51)
    assert series[PLAIN].low[1] < 51 < series[PLAIN].high[1]


def test_a_collapsed_published_arm_is_told_and_not_drawn() -> None:
    runs, name = invented_runs(), "PerturbedOPT, published"
    drawn = {
        row.name for row in perturbed_table("title", arms(), runs, (), fresh=True).charts[1].series
    }
    assert name in drawn
    runs[name] = {seed: invented_record(10, 60) for seed in range(4)}
    table = perturbed_table("title", arms(), runs, (), fresh=True)
    assert {row.name for row in table.charts[1].series} == drawn - {name}
    assert any(
        f"leave out {name}, whose validation accuracy of 10.0 %" in note for note in table.notes
    )
    assert name in [row[0] for row in table.rows]


def test_one_seed_makes_no_rows() -> None:
    one = {name: {0: found[0]} for name, found in invented_runs().items()}
    assert perturbed_table("title", arms(), one, (), fresh=True).rows == ()


@pytest.mark.usefixtures("invented")
def test_tiny_runs_and_the_weights_do_not_depend_on_the_test_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = PerturbedFigure6().tiny().replace(epochs=2)
    trial = Trial(parameters={"arm": "dropout 0.3"}, seed=1)
    found = study.run(trial)
    assert study.run(trial) == found

    def changed(size: int, test_size: int, seed: int) -> DataSet:
        data = images(size, test_size, seed)
        assert data.test_inputs is not None
        return dataclasses.replace(data, test_inputs=data.test_inputs.flip(0))

    monkeypatch.setattr(figure6, "cifar10", changed)
    other = study.run(trial)
    assert other["curves"]["validation"] == found["curves"]["validation"]
    assert other["curves"]["train"] == found["curves"]["train"]


@pytest.mark.usefixtures("invented")
def test_the_published_arm_keeps_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes: dict[str, Recipe] = {}
    study = PerturbedFigure6().tiny()
    for arm in arms():
        monkeypatch.setattr(
            figure6, "trained", lambda recipe, *_, name=arm.name: recipes.setdefault(name, recipe)
        )
        study.run(Trial(parameters={"arm": arm.name}))
    old, own = recipes["PerturbedOPT, published"], recipes[PLAIN]
    assert (old.learning_rate, old.batch_size, old.schedule) == (1e-4, 128, None)
    assert (own.learning_rate, own.batch_size) == (study.learning_rate, 64)
    assert own.schedule is not None
    same = {name: recipes[name].settings for name in recipes if "ublished" not in name}
    assert all(settings == own.settings for settings in same.values())


@pytest.mark.shared
@pytest.mark.usefixtures("shared_module")
def test_real_images_run_and_repeat() -> None:
    study = PerturbedFigure6().tiny()
    parts_of.cache_clear()
    try:
        first = study.run(study.trials()[1])
    except DataUnavailableError as missing:
        pytest.skip(str(missing))
    parts_of.cache_clear()
    assert study.run(study.trials()[1]) == first
