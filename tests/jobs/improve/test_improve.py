"""improve on small recipes: the answer, the store, and the ways to cheat."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from small_recipes import make_recipe, noisy_moons
from torch import nn

from mindgap import Recipe, improve
from mindgap.core import InputError, MindgapError
from mindgap.jobs.improve import job as job_module
from mindgap.jobs.improve.trials import ImproveTrials
from mindgap.report.improved import Improved
from mindgap.runs.store import Store
from mindgap.training.race.arm import BASELINE, RETUNED, baseline
from mindgap.training.race.of_recipe import RecipeTrainer

FEW = {"trainings": 40, "workers": 1}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> tuple[Improved, Path]:
    path = tmp_path_factory.mktemp("improve") / "runs.sqlite"
    return improve(make_recipe(), store=path, **FEW), path


def _rows(path: Path) -> list:
    with Store(path) as store:
        return store.records(ImproveTrials.name)


def test_the_answer_has_a_verdict_a_table_and_code(found):
    answer, _ = found
    assert answer.word in ("helps", "retuning helps", "could not tell", "no difference", "harms")
    assert answer.rows[0].role == "baseline"
    assert "finalist" in [row.role for row in answer.rows]
    assert "mindgap.fit(recipe" in answer.code
    assert answer.samples == 120
    assert answer.validation == 160
    assert sum(answer.trainings[k] for k in ("search", "confirmation")) <= 42
    compile(answer.code, "code", "exec")


def test_the_estimate_is_printed_whatever_the_verdict(found):
    answer, _ = found
    for row in answer.rows:
        if row.role == "finalist":
            assert row.interval is not None
            assert row.interval.low <= row.gain <= row.interval.high
            assert any(row.arm.lower() in text.lower() for text in answer.sentences)


def test_a_finished_race_returns_the_same_answer_and_trains_nothing(found, monkeypatch):
    answer, path = found
    before = _rows(path)
    monkeypatch.setattr(RecipeTrainer, "models", _no_training)
    again = improve(make_recipe(), store=path, **FEW)
    assert _undated(again) == _undated(answer)
    assert len(_rows(path)) == len(before)


def _no_training(*_: object, **__: object) -> None:
    raise AssertionError("a finished race must not train")


def _undated(answer: Improved) -> Improved:
    return dataclasses.replace(answer, provenance={})


def test_a_poisoned_test_set_changes_nothing_but_the_last_lines(found, tmp_path):
    answer, path = found
    _, (inputs, targets) = noisy_moons()
    poisoned = make_recipe(test=(inputs, 1 - targets))
    other = improve(poisoned, store=tmp_path / "poisoned.sqlite", **FEW)
    assert other.log == answer.log
    assert other.trials == answer.trials
    assert (other.seeds, other.trainings) == (answer.seeds, answer.trainings)
    assert [row.arm for row in other.rows] == [row.arm for row in answer.rows]
    # Every training is the same to the last bit, the confirmation included: only the judgment at
    # the end has seen a test target.
    assert _trained(tmp_path / "poisoned.sqlite") == _trained(path)
    assert other.rows[0].error == pytest.approx(1 - answer.rows[0].error)


def test_poisoned_test_inputs_do_not_change_the_search(found, tmp_path):
    answer, path = found
    _, (inputs, targets) = noisy_moons()
    poisoned = make_recipe(test=(torch.full_like(inputs, 7.0), targets))
    other = improve(poisoned, store=tmp_path / "inputs.sqlite", **FEW)
    assert other.log == answer.log
    stages = ("search", "diagnose")
    assert _trained(tmp_path / "inputs.sqlite", stages) == _trained(path, stages)


def _trained(path: Path, stages=("search", "confirm", "diagnose")) -> dict[str, object]:
    rows = [row for row in _rows(path) if row.parameters["stage"] in stages]
    return {json.dumps(row.parameters, sort_keys=True): row.record for row in rows}


def test_test_targets_are_opened_after_all_training(monkeypatch):
    events = list[str]()
    models, errors = RecipeTrainer.models, RecipeTrainer.errors

    def train(self, *args, **kwargs):
        events.append("train")
        return models(self, *args, **kwargs)

    def look(self, *args):
        events.append("test")
        return errors(self, *args)

    monkeypatch.setattr(RecipeTrainer, "models", train)
    monkeypatch.setattr(RecipeTrainer, "errors", look)
    improve(make_recipe(), store=":memory:", **FEW)
    assert events.index("test") > max(k for k, event in enumerate(events) if event == "train")


def test_no_training_is_given_test_data():
    trainer = RecipeTrainer(make_recipe())
    assert trainer.recipe.test is None
    assert trainer.prepared(baseline()).test is None


def test_confirmation_seeds_were_never_used_before(found):
    _, path = found
    used: dict[str, set[int]] = {"search": set(), "confirm": set()}
    for row in _rows(path):
        used.get(row.parameters["stage"], set()).update(row.parameters.get("seeds", ()))
    assert used["confirm"]
    assert not used["confirm"] & used["search"]


def test_confirmed_arms_share_their_seeds(found):
    _, path = found
    seeds: dict[str, list[int]] = {}
    for row in _rows(path):
        if row.parameters["stage"] == "confirm":
            seeds.setdefault(row.parameters["arm"]["name"], []).extend(row.parameters["seeds"])
    assert len({tuple(sorted(own)) for own in seeds.values()}) == 1
    assert BASELINE in seeds


def test_the_retuned_baseline_has_as_many_trials_as_any_remedy(found):
    answer, _ = found
    own = answer.trials[BASELINE] + answer.trials[RETUNED]
    assert own >= max(n for g, n in answer.trials.items() if g not in (BASELINE, RETUNED))


def test_a_killed_race_resumes_without_repeating_a_training(tmp_path, monkeypatch, found):
    answer, _ = found
    path, models = tmp_path / "killed.sqlite", RecipeTrainer.models
    calls = list[tuple[str, tuple[int, ...], bool]]()
    limit = [4]

    def train(self, arm, seeds, *, all_data):
        if len(calls) >= limit[0]:
            raise KeyboardInterrupt
        calls.append((json.dumps(arm.to_dict()), tuple(seeds), all_data))
        return models(self, arm, seeds, all_data=all_data)

    monkeypatch.setattr(RecipeTrainer, "models", train)
    for _ in range(60):
        try:
            again = improve(make_recipe(), store=path, **FEW)
            break
        except KeyboardInterrupt:
            limit[0] += 5
    assert _undated(again) == _undated(answer)
    assert len(calls) == len(set(calls))


def test_other_data_or_settings_are_another_race(found):
    names = {
        RecipeTrainer(recipe).identity()
        for recipe in (
            make_recipe(),
            make_recipe(epochs=5),
            make_recipe(learning_rate=0.02),
            make_recipe(train=noisy_moons(seed=1)[0]),
            make_recipe(model=lambda: nn.Sequential(nn.Linear(6, 2))),
        )
    }
    assert len(names) == 5
    assert RecipeTrainer(make_recipe()).identity() == RecipeTrainer(make_recipe()).identity()


@pytest.mark.parametrize("target", [make_recipe, make_recipe()], ids=["made", "pickled"])
def test_worker_processes_give_the_same_answer(found, tmp_path, target):
    answer, _ = found
    other = improve(target, store=tmp_path / "workers.sqlite", trainings=40, workers=2)
    assert other.log == answer.log
    assert other.word == answer.word
    for mine, its in zip(answer.rows, other.rows, strict=True):
        assert mine.error == pytest.approx(its.error, abs=1e-6)


def test_a_budget_of_time_is_planned_once(tmp_path, monkeypatch):
    path = tmp_path / "timed.sqlite"
    first = improve(make_recipe(), budget="1h", trainings=40, store=path, workers=1)
    monkeypatch.setattr(job_module, "affordable", lambda *_: 1)
    again = improve(make_recipe(), budget="1h", trainings=40, store=path, workers=1)
    assert _undated(first) == _undated(again)
    with pytest.raises(InputError, match="at least 40 trainings, got 1"):
        improve(make_recipe(), budget="2h", store=path, workers=1)


def test_a_regression_is_improved_in_its_loss():
    x = torch.linspace(-2, 2, 120)[:, None]
    y = x**2 + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    order = torch.randperm(120, generator=torch.Generator().manual_seed(2))
    train, test = order[:80], order[80:]
    recipe = Recipe(
        model=lambda: nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)),
        train=(x[train], y[train]),
        test=(x[test], y[test]),
        loss="mse",
        epochs=8,
        learning_rate=3e-3,
        batch_size=16,
    )
    answer = improve(recipe, store=":memory:", remedies=["annealing", "weight-averaging"], **FEW)
    assert (answer.metric, answer.rate) == ("test loss", False)
    assert answer.word in ("retuning helps", "helps")  # eight epochs are too few
    assert "label-smoothing" not in answer.skipped


def test_a_function_that_trains_is_enough():
    train, test = noisy_moons()
    (x, y), validation = train, (train[0][-40:], train[1][-40:])
    seen = list[list[str]]()

    def fit_by_hand(seed: int, remedies: list, learning_rate: float = 0.01) -> nn.Module:
        from mindgap import fit

        seen.append([remedy.name for remedy in remedies])
        recipe = make_recipe(train=(x[:-40], y[:-40]), test=None, learning_rate=learning_rate)
        return fit(recipe, remedies, seed=seed, evaluate_every=0).model

    answer = improve(
        fit_by_hand,
        validation=validation,
        test=test,
        retune=[{"learning_rate": 0.03}, {"learning_rate": 0.003}],
        remedies=["label-smoothing", "weight-decay"],
        store=":memory:",
        name="by hand",
        **FEW,
    )
    assert answer.title == "by hand"
    assert ["label-smoothing"] in seen
    assert any(step.arm == "learning rate 0.03" for step in answer.log)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"trainings": 12}, "at least 40 trainings, got 12"),
        ({"budget": "soon"}, "budget must be a time such as"),
        ({"holdout": 1.5}, "holdout must be"),
        ({"remedies": ["label-smothing"]}, "Did you mean 'label-smoothing'"),
        ({"validation": (1, 2)}, "validation must be left out"),
    ],
)
def test_bad_input_is_one_sentence(changes, told):
    with pytest.raises(MindgapError, match=told):
        improve(make_recipe(), **{"store": ":memory:", "workers": 1, **changes})


def test_what_cannot_be_improved_is_refused():
    with pytest.raises(InputError, match="must have test data"):
        improve(make_recipe(test=None), store=":memory:")
    with pytest.raises(InputError, match="improve needs a Recipe"):
        improve(3, store=":memory:")
    with pytest.raises(InputError, match=r"must come with validation=… and test=…"):
        improve(lambda seed, remedies: nn.Linear(6, 2), store=":memory:")
    with pytest.raises(
        InputError, match=r"must train as it is, got: .*\(broken\)\. .*[^.]\. Correct it"
    ):
        improve(make_recipe(model=_broken), store=":memory:", **FEW)


def _broken() -> nn.Module:
    class Broken(nn.Linear):
        def forward(self, x):
            if self.training:
                raise ValueError("broken")
            return super().forward(x)

    return Broken(6, 2)


def test_the_answer_survives_json_and_is_saved(found, tmp_path):
    answer, _ = found
    assert Improved.from_json(answer.to_json()) == dataclasses.replace(
        Improved.from_dict(json.loads(answer.to_json()))
    )
    back = Improved.from_json(answer.to_json())
    assert back.rows == answer.rows
    assert back.log == answer.log
    page = answer.save(tmp_path / "page.html").read_text()
    assert 'id="verdict"' in page
    assert answer.headline[:20] in page
    assert "The race on validation data" in page
    assert answer.headline in answer.save(tmp_path / "page.md").read_text()
    with pytest.raises(InputError, match="must end in"):
        answer.save(tmp_path / "page.pdf")
    with pytest.raises(InputError, match="kind 'improved'"):
        Improved.from_dict({"schema": 1})


def test_numbers_are_those_of_the_test_data(found):
    answer, path = found
    trainer = RecipeTrainer(make_recipe())
    rows = [
        row
        for row in _rows(path)
        if row.parameters["stage"] == "confirm" and row.parameters["arm"]["name"] == BASELINE
    ]
    from mindgap.jobs.improve.trials import unpacked

    _, (_, targets) = noisy_moons()
    answers = [unpacked(a) for row in rows for a in row.record["answers"]]
    wrong = [np.mean(a.argmax(1) != targets.numpy()) for a in answers]
    assert answer.rows[0].error == pytest.approx(np.mean(wrong))
    models = trainer.models(baseline(), rows[0].parameters["seeds"], all_data=True)
    with torch.no_grad():
        own = models[0](noisy_moons()[1][0]).numpy()
    assert np.allclose(own, answers[0], atol=1e-6)
