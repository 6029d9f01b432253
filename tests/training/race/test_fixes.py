"""Fixes of a cause, as arms and as what they do."""

import pytest
import torch
from torch import nn

from mindgap.core import Finding, Recipe, Suspects
from mindgap.nets import MLP
from mindgap.training.race.arm import Arm, baseline
from mindgap.training.race.fixes import fixes_of, recompute
from mindgap.training.race.of_recipe import RecipeTrainer

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
RECIPE = Recipe(
    model=lambda: MLP((4, 6, 2)), train=(X[:40], Y[:40]), test=(X[40:], Y[40:]), epochs=2
)


def _finding(symptom, severity="wrong", **more) -> Finding:
    return Finding(name="x", sentence="x", severity=severity, symptom=symptom, **more)


def test_suspects_are_dropped_or_relabeled():
    suspects = Suspects(split="train", index=[3, 1], columns={"suggested": [1, 0]})
    drop, relabel = fixes_of([_finding("wrong labels", suspects=suspects)], RECIPE, 40)
    assert drop.fix == {"drop": [1, 3]}
    assert relabel.fix == {"relabel": [[1, 0], [3, 1]]}


@pytest.mark.parametrize(
    ("symptom", "name"),
    [
        ("unscaled inputs", "rescale inputs"),
        ("broken evaluation", "recompute BatchNorm"),
        ("under-fitting", "train longer"),
    ],
)
def test_each_cause_has_its_fix(symptom, name):
    (arm,) = fixes_of([_finding(symptom)], RECIPE, 40)
    assert arm.name == name


def test_notes_and_what_others_explain_bring_no_fix():
    found = [
        _finding("unscaled inputs", "note"),
        _finding("unscaled inputs", explained_by="leak"),
        _finding("over-fitting"),
        _finding("wrong labels", suspects=Suspects(split="test", index=[1])),
        _finding("wrong labels", suspects=Suspects(split="train", index=list(range(25)))),
    ]
    assert fixes_of(found, RECIPE, 40) == []


def test_dropped_samples_are_not_trained_on():
    trainer = RecipeTrainer(RECIPE)
    gone = trainer.rest(0)[:5].tolist()
    arm = Arm(name="drop", group="drop", fix={"drop": gone})
    plain = trainer.prepared(baseline(), 0).splits()[0]
    kept = trainer.prepared(arm, 0).splits()[0]
    assert len(kept) == len(plain) - 5
    assert len(trainer.prepared(arm).splits()[0]) == 35
    assert torch.equal(kept.targets, plain.targets[5:])


def test_relabeled_samples_have_their_new_targets_and_validation_its_own():
    trainer = RecipeTrainer(RECIPE)
    place = int(trainer.rest(0)[0])
    arm = Arm(name="relabel", group="relabel", fix={"relabel": [[place, 1 - int(Y[place])]]})
    train = trainer.prepared(arm).splits()[0]
    assert int(train.targets[place]) == 1 - int(Y[place])
    assert int(train.take(torch.tensor([place])).target) == 1 - int(Y[place])
    assert int((train.targets != Y[:40]).sum()) == 1
    assert torch.equal(trainer.validation[0].targets, Y[:40][trainer.held[0]])


def test_inputs_are_rescaled_inside_the_model():
    wide = RECIPE.replace(train=(1000 * X[:40] + 5000, Y[:40]), test=(1000 * X[40:] + 5000, Y[40:]))
    trainer = RecipeTrainer(wide)
    arm = Arm(name="rescale", group="rescale", fix={"rescale": True})
    (model,) = trainer.models(arm, [0], all_data=True)
    scaled = model[0](1000 * X[:40] + 5000)
    assert scaled.mean(0).abs().max() < 1e-3
    assert (scaled.std(0) - 1).abs().max() < 1e-3
    assert trainer.scores(arm, [0])[0].errors.shape == (8,)


def test_statistics_are_recomputed_as_plain_means():
    model = nn.Sequential(nn.BatchNorm1d(4, momentum=0.1), nn.Linear(4, 2))
    split = RECIPE.splits()[0]
    recompute(model, split)
    assert torch.allclose(model[0].running_mean, X[:40].mean(0), atol=1e-6)
    assert torch.allclose(model[0].running_var, X[:40].var(0), atol=1e-6)
    assert model[0].momentum == 0.1
    assert not model.training


def test_less_data_keeps_every_class_with_its_share():
    trainer = RecipeTrainer(RECIPE)
    arm = Arm(name="half", group="half", fix={"share": 0.5})
    train = trainer.prepared(arm, 0).splits()[0]
    assert len(train) == 16
    assert len(train.targets.unique()) == 2
