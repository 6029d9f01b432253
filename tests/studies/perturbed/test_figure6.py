"""Figures 6 to 9 of Wang et al. 2018: arms and runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from mindgap.core.errors import DataUnavailableError
from mindgap.core.recipe import Recipe
from mindgap.core.study import Trial
from mindgap.data import DataSet
from mindgap.remedies.perturbation.perturbed import Perturbed
from mindgap.studies.perturbed import figure6
from mindgap.studies.perturbed.arms import METHODS, PLAIN, Arm, parts_of
from mindgap.studies.perturbed.figure6 import PerturbedFigure6

OLD_PLAIN = "Adam, published rate"


def arms(data: str = "cifar10") -> tuple[Arm, ...]:
    return figure6.arms(data)


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
    monkeypatch.setitem(figure6.DATA, "cifar10", images)
    yield
    parts_of.cache_clear()


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


def test_dropout_is_inside_the_blocks_and_changes_no_initial_weight() -> None:
    plain, dropped = (
        Recipe(
            model=lambda rate=rate: figure6._network(10, 1, 10, dropout=rate), train=([], [])
        ).build(7)
        for rate in (0.0, 0.3)
    )
    assert all(
        torch.equal(a, b) for a, b in zip(plain.parameters(), dropped.parameters(), strict=True)
    )
    assert [module.p for module in dropped.modules() if isinstance(module, nn.Dropout)] == [0.3] * 3


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

    monkeypatch.setitem(figure6.DATA, "cifar10", changed)
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


def test_tiny_imagenet_has_its_own_published_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    published, plain = arms("tiny-imagenet")[-1], arms("tiny-imagenet")[-2]
    assert (plain.name, plain.remedies, published.control) == (
        "SGD, published rate",
        (),
        plain.name,
    )
    assert published.changes == plain.changes
    wanted = {"optimizer": "sgd", "learning_rate": 0.01, "batch_size": 200, "schedule": None}
    assert published.changes == wanted
    (remedy,) = published.remedies
    assert isinstance(remedy, Perturbed)
    assert (remedy.eta, remedy.gamma, remedy.epsilon) == (100.0, 1.0, 1e-5)


@pytest.mark.parametrize(
    ("name", "figure"), [("cifar100", "Figure 8"), ("tiny-imagenet", "Figure 9")]
)
def test_other_data_sets_give_their_figures(
    monkeypatch: pytest.MonkeyPatch, name: str, figure: str
) -> None:
    def many(size: int, test_size: int, seed: int) -> DataSet:
        data = images(size, test_size, seed)
        assert data.test_targets is not None
        more = {"targets": data.targets + 90, "test_targets": data.test_targets + 90}
        return dataclasses.replace(data, **more)

    monkeypatch.setitem(figure6.DATA, name, many)
    study = PerturbedFigure6(data=name).tiny()
    trials = [
        Trial(parameters={"arm": arm.name}, seed=seed) for arm in arms(name) for seed in (0, 1)
    ]
    one = study.run(trials[-1])
    parts_of.cache_clear()
    assert one["stopped"] == ""
    table = study.summarize([(trial, one) for trial in trials])
    assert figure in table.title
    rate = {
        "cifar100": "Adam with a learning rate of 0.0001",
        "tiny-imagenet": "SGD with a learning rate of 0.01",
    }
    assert any(rate[name] in note for note in table.notes)


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
