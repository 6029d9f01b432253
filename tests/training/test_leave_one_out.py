"""Leave-one-out retraining in one vectorized call against separate retraining."""

import pytest
import torch
from cases import recipe as small_recipe

from mindgap.core import InputError, Recipe, Subject
from mindgap.nets import MLP
from mindgap.training.fit import fit
from mindgap.training.leave_one_out import leave_one_out, member_losses, operations


def noisy(samples: int = 60, width: int = 5) -> Recipe:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2 * samples, width, generator=random)
    y = (x[:, 0] + 0.5 * torch.randn(2 * samples, generator=random) > 0).long()
    return Recipe(
        model=lambda: MLP((width, 8, 2)),
        train=(x[:samples], y[:samples]),
        test=(x[samples:], y[samples:]),
        epochs=100,
        batch_size=16,
        learning_rate=0.01,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 60, "weight_decay": 0.01},
        {"sample_weights": torch.linspace(0.5, 2, 60)},
    ],
    ids=["adam", "full batch", "weighted"],
)
def test_equals_separate_retraining(changes: dict[str, object]) -> None:
    recipe = noisy().replace(**changes)
    found = leave_one_out(fit(recipe, seed=3, evaluate_every=0).subject(), torch.tensor([0, 59]))
    own = torch.ones(60) if recipe.sample_weights is None else recipe.sample_weights
    for row, place in enumerate((0, 59)):
        weights = own.clone()
        weights[place] = 0
        alone = fit(recipe.replace(sample_weights=weights), seed=3, evaluate_every=0)
        pairs = zip(
            found.members[row + 1].model.parameters(), alone.model.parameters(), strict=True
        )
        assert all(torch.allclose(one, other, atol=1e-5, rtol=0) for one, other in pairs)
        subject = alone.subject()
        losses = torch.cat([subject.losses("train"), subject.losses("test")]).double()
        assert torch.allclose(found.after[row], losses, atol=1e-4)


def test_own_and_largest_are_read_from_the_losses() -> None:
    subject = fit(noisy().replace(epochs=5)).subject()
    found = leave_one_out(subject, torch.tensor([4, 2]))
    assert found.own[1] == found.after[1, 2] - found.before[2]
    assert found.largest[0] == (found.after[0] - found.before).abs().max()
    assert torch.allclose(found.before[:60], subject.losses("train").double(), atol=1e-5)


def test_a_removed_sample_does_not_matter_any_more() -> None:
    """Whatever its label says, the model without it is the same."""
    recipe = noisy().replace(epochs=10)
    (x, y), place = recipe.train, torch.tensor([5])
    flipped = y.clone()
    flipped[5] = 1 - flipped[5]
    weights = [
        leave_one_out(fit(recipe.replace(train=(x, labels))).subject(), place).members[1].model
        for labels in (y, flipped)
    ]
    assert all(
        torch.equal(*pair) for pair in zip(*(model.parameters() for model in weights), strict=True)
    )


def test_losses_of_members_equal_those_of_subjects() -> None:
    recipe = small_recipe()
    models = [recipe.build(seed) for seed in range(3)]
    subject = Subject(models[0], "cross_entropy", recipe.train, recipe.test)
    rows = [Subject(m, "cross_entropy", recipe.train, recipe.test).losses("test") for m in models]
    found = member_losses(subject, models, "test")
    assert torch.allclose(found, torch.stack(rows).double(), atol=1e-6)


def test_refuses_in_one_sentence() -> None:
    recipe = noisy()
    bare = Subject(recipe.build(0), "cross_entropy", recipe.train)
    with pytest.raises(InputError, match="needs the recipe"):
        leave_one_out(bare, torch.arange(2))
    wild = recipe.replace(optimizer="sgd", learning_rate=1e30)
    subject = Subject(recipe.build(0), "cross_entropy", recipe.train, recipe=wild)
    with pytest.raises(InputError, match="diverged"):
        leave_one_out(subject, torch.arange(2))


def test_remedies_take_the_recipe_away() -> None:
    from mindgap.remedies import WeightDecay

    recipe = noisy().replace(epochs=1)
    assert fit(recipe).subject().recipe is not None
    assert fit(recipe, [WeightDecay(decay=0.1)]).subject().recipe is None


def test_operations_count_the_trainings() -> None:
    subject = Subject(noisy().build(0), "cross_entropy", noisy().train, recipe=noisy())
    # Two operations per weight of 5-8-2, three passes, 100 epochs, 60 samples, 7 trainings.
    assert operations(subject, 7) == 3 * 2 * (5 * 8 + 8 * 2) * 100 * 60 * 7
