"""Planted causes bring the matching arm into the race, on training and validation data alone."""

import pytest
import torch
from torch import nn

from mindgap.core import Recipe, Subject
from mindgap.data import load
from mindgap.diagnoses.causes import causes, doubts
from mindgap.nets import MLP
from mindgap.training.race.arm import baseline
from mindgap.training.race.candidates import arms_of, remedies_to_try
from mindgap.training.race.fixes import fixes_of
from mindgap.training.race.of_recipe import RecipeTrainer
from mindgap.training.race.plan import make_plan

SAMPLES = 500


def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load("digits")
    return data.inputs.flatten(1).float()[:SAMPLES], data.targets[:SAMPLES]


def _recipe(x: torch.Tensor, y: torch.Tensor, **changes) -> Recipe:
    settings = {
        "model": lambda: MLP((x.shape[1], 32, int(y.max()) + 1)),
        "epochs": 15,
        "learning_rate": 0.01,
        "batch_size": 50,
        **changes,
    }
    # Test targets that no training could explain: nothing here may look at them.
    return Recipe(train=(x, y), test=(x[:50], (y[:50] + 1) % 2), **settings)


def _flipped(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    flip = torch.rand(len(y), generator=random) < 0.12
    other = (y + 1 + torch.randint(0, 9, y.shape, generator=random)) % 10
    return torch.where(flip, other, y), flip


def _wrong_labels() -> Recipe:
    x, y = _digits()
    return _recipe(x, _flipped(y)[0])


def _unscaled() -> Recipe:
    x, y = _digits()
    return _recipe(torch.where(torch.arange(64) % 2 == 0, 2000 * x, x), y)


def _rare() -> Recipe:
    random = torch.Generator().manual_seed(0)
    y = (torch.arange(1000) % 25 == 0).long()
    x = torch.randn(1000, 4, generator=random) + 1.2 * y[:, None]
    return _recipe(x, y)


def _short() -> Recipe:
    x, y = _digits()
    return _recipe(x, y, epochs=2, learning_rate=1e-3)


def _stale() -> Recipe:
    x, y = _digits()
    return _recipe(x, y, model=_slow_norm, epochs=10)


def _slow_norm() -> nn.Module:
    norm = nn.BatchNorm1d(32, momentum=0.001)
    return nn.Sequential(nn.Linear(64, 32), norm, nn.ReLU(), nn.Linear(32, 10))


def _groups(recipe: Recipe) -> list[str]:
    """Which arms improve would race."""
    trainer = RecipeTrainer(recipe)
    found = causes(trainer, 0)
    told = [row for row in found if row.severity != "note" and not row.explained_by]
    symptoms = [row.symptom for row in told if row.symptom is not None]
    inputs = trainer.validation[0].take(torch.arange(1)).inputs
    remedies, _ = remedies_to_try(symptoms, trainer.task, inputs)
    fixes = fixes_of(found, trainer.recipe, len(trainer.train))
    arms = arms_of(remedies, make_plan(100), fixes)(baseline())
    return list(dict.fromkeys(arm.group for arm in arms))


@pytest.mark.parametrize(
    ("plant", "arms"),
    [
        (_wrong_labels, ["drop suspects", "relabel suspects"]),
        (_unscaled, ["rescale inputs"]),
        (_rare, ["class-balance"]),
        (_short, ["train longer"]),
        (_stale, ["recompute BatchNorm"]),
    ],
)
def test_a_planted_cause_brings_its_arm_first(plant, arms):
    assert _groups(plant())[: len(arms)] == arms


def test_a_healthy_recipe_brings_no_fix():
    found = _groups(_recipe(*_digits()))
    assert found[0] == "label-smoothing"
    assert not {"drop suspects", "relabel suspects", "rescale inputs", "train longer"} & set(found)


def test_suspects_are_the_planted_samples_and_their_labels_come_back():
    x, y = _digits()
    noisy, flip = _flipped(y)
    (found,) = [
        row for row in causes(RecipeTrainer(_recipe(x, noisy)), 0) if row.symptom == "wrong labels"
    ]
    assert found.suspects is not None
    index = torch.tensor(found.suspects.index)
    suggested = torch.tensor(found.suspects.columns["suggested number"])
    assert len(index) > 0.5 * flip.sum()
    assert flip[index].float().mean() > 0.85
    assert (suggested == y[index]).float().mean() > 0.85


def test_causes_do_not_look_at_test_data():
    recipe = _short()
    x, y = recipe.test
    other = causes(RecipeTrainer(recipe.replace(test=(1e6 * x, 1 - y))), 0)
    assert other == causes(RecipeTrainer(recipe), 0)


def test_hard_samples_are_not_doubted():
    """Classes that overlap contradict a predictor as often, but not where it is confident."""
    random = torch.Generator().manual_seed(0)
    y = (torch.arange(800) % 2).long()
    x = torch.randn(800, 2, generator=random) + 1.5 * y[:, None]
    data = (x, y), (x[:10], y[:10])
    assert doubts(Subject(nn.Linear(2, 2), "cross_entropy", *data)) is None
    wild = torch.randint(0, 2, y.shape, generator=random)
    assert doubts(Subject(nn.Linear(2, 2), "cross_entropy", (x, wild), data[1])) is None
    assert doubts(Subject(nn.Linear(2, 1), "mse", (x, x[:, :1]), (x, x[:, :1]))) is None
