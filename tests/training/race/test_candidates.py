"""Which arms enter a race."""

import pytest
import torch
from torch import nn

from mindgap.core import Recipe, Remedy, catalog
from mindgap.training.race.arm import RETUNED, Arm, baseline
from mindgap.training.race.candidates import arms_of, cells, extensions, remedies_to_try, retuned
from mindgap.training.race.plan import make_plan

DATA = (torch.randn(8, 3), torch.tensor([0, 1] * 4))
RECIPE = Recipe(model=lambda: nn.Linear(3, 2), train=DATA, epochs=10, learning_rate=0.01)
INPUTS = (torch.zeros(1, 3),)


def test_one_setting_changes_at_a_time():
    found = cells(RECIPE)
    assert [dict(arm.settings) for arm in found] == [
        {"learning_rate": 0.03},
        {"learning_rate": 0.00333},
        {"epochs": 20},
        {"weight_decay": 0.001},
    ]
    assert [arm.cost for arm in found] == [1, 1, 2, 1]
    assert {arm.group for arm in found} == {RETUNED}


def test_an_optimizer_of_the_users_own_is_not_retuned():
    own = RECIPE.replace(optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    assert [dict(arm.settings) for arm in cells(own)] == [{"epochs": 20}]


def test_the_grid_is_extended_along_the_best_cell_and_joined_with_the_good_ones():
    up, down, longer, decay = cells(RECIPE)
    found = [dict(arm.settings) for arm in extensions(RECIPE)(up, [up, decay])]
    assert found == [{"learning_rate": 0.09}, {"learning_rate": 0.03, "weight_decay": 0.001}]
    (further,) = extensions(RECIPE)(down, [down])
    assert further.settings["learning_rate"] == pytest.approx(0.00111)
    assert extensions(RECIPE)(longer, [longer]) == []  # four times the epochs are too expensive
    (longest,) = extensions(RECIPE, 4.0)(longer, [longer])
    assert (longest.settings["epochs"], longest.cost) == (40, 4)
    (more,) = extensions(RECIPE)(decay, [decay])
    assert more.settings["weight_decay"] == pytest.approx(0.01)
    assert extensions(RECIPE)(baseline(), []) == []


def test_experience_decides_where_nothing_was_found():
    found, skipped = remedies_to_try([], "classification", INPUTS)
    names = [cls.name for cls in found]
    assert names[:4] == ["label-smoothing", "annealing", "weight-averaging", "early-stopping"]
    assert set(names[-2:]) == {"dropout", "weight-decay"}
    assert "random-shifts" in skipped  # the inputs are no images
    assert set(names) | set(skipped) == set(catalog("remedy"))


def test_findings_bring_their_remedies_first():
    names = [cls.name for cls in remedies_to_try(["hard samples"], "classification", INPUTS)[0]]
    treating = {
        cls.name
        for cls in catalog("remedy").values()
        if issubclass(cls, Remedy) and "hard samples" in cls.treats
    }
    assert set(names[: min(3, len(treating))]) <= treating
    assert names.index("label-smoothing") >= min(3, len(treating))


def test_a_regression_gets_no_label_smoothing():
    found, skipped = remedies_to_try([], "regression", INPUTS)
    assert "label-smoothing" in skipped
    assert "sam" in skipped
    assert found[0].name == "annealing"


def test_only_named_remedies_are_chosen_from():
    found, _ = remedies_to_try([], "regression", INPUTS, ["sam", "dropout"])
    assert [cls.name for cls in found] == ["sam", "dropout"]


def test_every_remedy_has_distinct_strengths_that_are_on():
    for cls in catalog("remedy").values():
        assert issubclass(cls, Remedy)
        arms = arms_of([cls], make_plan(200))(baseline())
        assert len({arm.name for arm in arms}) == len(arms) == 3, cls.name
        assert all(arm.remedies[0].on for arm in arms)
        assert {arm.cost for arm in arms} == {cls.cost}


def test_candidates_are_put_on_top_of_the_control():
    control = retuned(RECIPE, {"epochs": 20})
    fix = Arm(name="drop suspects", group="drop suspects", fix={"drop": [1]})
    plan = make_plan(200)
    arms = arms_of(remedies_to_try([], "classification", INPUTS)[0], plan, [fix])(control)
    assert arms[0].fix == {"drop": [1]}
    assert all(arm.settings == {"epochs": 20} for arm in arms)
    assert arms[1].cost == pytest.approx(2 * arms[1].remedies[0].cost)
    assert len({arm.group for arm in arms}) == plan.remedies
    assert len(arms) == 1 + 3 * 5


def test_an_arm_survives_its_plain_form():
    (arm, *_) = arms_of(remedies_to_try([], "classification", INPUTS)[0], make_plan(200))(
        retuned(RECIPE, {"learning_rate": 0.03})
    )
    assert Arm.from_dict(arm.to_dict()) == arm
