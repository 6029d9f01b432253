"""improve with outer folds: every sample is tested once, and the claim is about what is picked."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_recipes import make_recipe, noisy_moons
from torch import nn

from mindgap import Recipe, improve
from mindgap.core import InputError
from mindgap.jobs.improve.trials import ImproveTrials, unpacked
from mindgap.report.improved import Improved
from mindgap.runs.store import Store
from mindgap.training.race.arm import BASELINE
from mindgap.training.race.of_recipe import Outer, RecipeTrainer

FEW = {"trainings": 80, "workers": 1, "folds": 2, "remedies": ["label-smoothing", "annealing"]}
EVENTS = list[str]()


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> tuple[Improved, Path]:
    path = tmp_path_factory.mktemp("folds") / "runs.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("models", "errors"):
            patch.setattr(RecipeTrainer, name, _noted(name, getattr(RecipeTrainer, name)))
        return improve(make_recipe(), store=path, **FEW), path


def _noted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: RecipeTrainer, *args: Any, **kwargs: Any) -> Any:
        EVENTS.append(name)
        return method(self, *args, **kwargs)

    return call


def test_every_sample_is_tested_once():
    recipe = make_recipe()
    parts = [Outer(number=k, count=3, seed=0).cut(recipe).splits() for k in range(3)]
    whole = torch.cat([split.take(torch.arange(len(split))).inputs[0] for split in recipe.splits()])
    tests = torch.cat([test.take(torch.arange(len(test))).inputs[0] for _, test in parts])
    assert len(tests) == len(whole) == 280
    assert {tuple(row.tolist()) for row in tests} == {tuple(row.tolist()) for row in whole}
    for train, test in parts:
        rows = [
            {tuple(r.tolist()) for r in s.take(torch.arange(len(s))).inputs[0]}
            for s in (train, test)
        ]
        assert len(rows[0]) + len(rows[1]) == 280
        assert not rows[0] & rows[1]


def test_named_inputs_and_weights_are_cut_too():
    words, labels = torch.arange(12).reshape(6, 2), torch.tensor([0, 1] * 3)
    recipe = Recipe(
        model=nn.Identity,
        train={"words": words, "label": labels},
        target="label",
        sample_weights=torch.arange(6.0),
    )
    cut = Outer(number=1, count=3, seed=0).cut(recipe)
    train, test = cut.splits()
    assert train.take(torch.arange(4)).inputs["words"].shape == (4, 2)
    places = train.take(torch.arange(4)).inputs["words"][:, 0] // 2
    assert torch.equal(cut.sample_weights, places.float())
    assert torch.equal(train.targets, labels[places])
    assert len(test) == 2
    with pytest.raises(InputError, match="whose samples all have a weight"):
        Outer(number=1, count=3, seed=0).cut(recipe.replace(test=recipe.train))


def test_the_claim_is_about_what_is_picked(found):
    answer, _ = found
    assert answer.folds == 2
    assert answer.samples == 280
    assert [row.role for row in answer.rows] == ["baseline", "control", "finalist"]
    assert answer.rows[2].arm == "what improve picks"
    assert "not of one arm" in answer.claims[0]
    assert sum(text.startswith("Fold ") for text in answer.sentences) == 2
    assert {step.fold for step in answer.log} == {1, 2}
    assert sum(answer.trainings[k] for k in ("search", "confirmation")) <= 84
    compile(answer.code, "code", "exec")


def test_numbers_are_means_over_all_samples(found):
    """Against a plain loop over the stored answers of every fold."""
    answer, path = found
    wrong: list[np.ndarray] = []
    with Store(path) as store:
        rows = [r for r in store.records(ImproveTrials.name) if r.parameters["stage"] == "confirm"]
    for number in range(2):
        trainer = RecipeTrainer(Outer(number=number, count=2, seed=0).cut(make_recipe()))
        own = [
            unpacked(a)
            for row in rows
            if row.fields["problem"] == trainer.identity()
            and row.parameters["arm"]["name"] == BASELINE
            for a in row.record["answers"]
        ]
        targets = trainer.test.targets.numpy()
        wrong.append(np.mean([a.argmax(1) != targets for a in own], axis=0))
    assert len(np.concatenate(wrong)) == 280
    assert answer.rows[0].error == pytest.approx(np.concatenate(wrong).mean())


def test_folds_share_no_seed(found):
    _, path = found
    used: dict[str, set[int]] = {}
    with Store(path) as store:
        for row in store.records(ImproveTrials.name):
            key = row.fields["problem"] + row.parameters["stage"]
            if row.parameters["stage"] in ("search", "confirm"):
                used.setdefault(key, set()).update(row.parameters["seeds"])
    seeds = list(used.values())
    assert len(seeds) == 4
    assert sum(map(len, seeds)) == len(set.union(*seeds))


def test_a_finished_race_trains_nothing(found, monkeypatch):
    answer, path = found

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a finished race must not train")

    monkeypatch.setattr(RecipeTrainer, "models", refuse)
    again = improve(make_recipe(), store=path, **FEW)
    assert dataclasses.replace(again, provenance={}) == dataclasses.replace(answer, provenance={})


def test_all_training_comes_before_any_test_target(found):
    last = max(k for k, event in enumerate(EVENTS) if event == "models")
    assert EVENTS.index("errors") > last


def test_targets_that_judge_a_fold_enter_the_training_of_others_alone():
    """The identity hashes all on which a training depends: poison the targets of one fold."""
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = x[:, :1] ** 2
    recipe = Recipe(model=lambda: nn.Linear(2, 1), train=(x, y), loss="mse")
    folds = [Outer(number=k, count=2, seed=0) for k in range(2)]
    judged = folds[0].cut(recipe).splits()[1].targets
    poisoned = recipe.replace(train=(x, torch.where(torch.isin(y, judged), 10 * y + 3, y)))
    before, after = (
        [RecipeTrainer(fold.cut(one)).identity() for fold in folds] for one in (recipe, poisoned)
    )
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_the_answer_survives_json_and_the_page_has_every_fold(found, tmp_path):
    answer, _ = found
    back = Improved.from_json(answer.to_json())
    assert (back.folds, back.log, back.rows) == (2, answer.log, answer.rows)
    assert json.loads(answer.to_json())["log"][0]["fold"] == 1
    page = answer.save(tmp_path / "page.html").read_text()
    for number in (1, 2):
        assert f"The race on validation data, fold {number}" in page
    assert "2 outer folds" in page.replace("\u202f", " ").replace("\xa0", " ")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"folds": 0}, "folds must be"),
        ({"folds": 9}, "folds must be"),
        ({"trainings": 70}, "at least 40 trainings, got 35"),
    ],
)
def test_bad_input_is_one_sentence(changes, told):
    with pytest.raises(InputError, match=told):
        improve(make_recipe(), store=":memory:", **{**FEW, **changes})


def test_a_function_that_trains_has_no_folds():
    _, test = noisy_moons()
    with pytest.raises(InputError, match="folds must go with a recipe"):
        improve(lambda seed, remedies: nn.Linear(6, 2), validation=test, test=test, folds=3)
