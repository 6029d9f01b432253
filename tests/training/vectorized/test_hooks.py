"""Hooks of inputs, losses, rates and epochs give in every engine the weights of the plain loop."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Remedy
from mindgap.nets import MLP
from mindgap.remedies import (
    Annealing,
    ClassBalance,
    HardExamples,
    InputNoise,
    LabelSmoothing,
    Mixup,
    RandomFlips,
    RandomShifts,
    SelfPaced,
    WeightAveraging,
    WeightDecay,
)
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.fit import fit
from mindgap.training.vectorized.block import Block, Settings
from mindgap.training.vectorized.members import groups_of, members_of

RANDOM = torch.Generator().manual_seed(0)
IMAGES = torch.randn(20, 1, 8, 8, generator=RANDOM)
CLASSES = torch.randint(0, 3, (20,), generator=RANDOM)
MODELS = {
    "Dense": lambda: nn.Sequential(nn.Flatten(), MLP((64, 6, 3), "tanh")),
    "General": lambda: nn.Sequential(nn.Flatten(), MLP((64, 6, 3), norm="layer")),
    "Convolutional": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3)
    ),
}
LISTS: list[list[Remedy]] = [
    [LabelSmoothing(share=0.2)],
    [Annealing(peak=2.0)],
    [WeightAveraging(share=0.7)],
    [InputNoise(scale=0.5)],
    [RandomShifts(pixels=2)],
    [RandomFlips()],
    [Mixup(alpha=1.0)],
    [ClassBalance(beta=0.9)],
    [HardExamples(share=0.4)],
    [SelfPaced(share=0.5)],
    [
        LabelSmoothing(),
        Mixup(alpha=0.5),
        InputNoise(),
        WeightDecay(),
        Annealing(),
        WeightAveraging(),
    ],
]


def plan(engine: str, batch_size: int) -> Recipe:
    return Recipe(
        model=MODELS[engine],
        train=(IMAGES, CLASSES),
        epochs=4,
        batch_size=batch_size,
        learning_rate=0.01,
    )


@pytest.mark.parametrize("engine", MODELS)
@pytest.mark.parametrize("batch_size", [6, 64])
@pytest.mark.parametrize("remedies", LISTS, ids=lambda own: "+".join(one.name for one in own))
def test_members_equal_the_plain_loop(engine: str, batch_size: int, remedies: list[Remedy]) -> None:
    recipe = plan(engine, batch_size)
    (group,) = groups_of(members_of(recipe, (1, 2), remedies, {}, None))
    assert (
        type(Block(group.members, group.recipes, Settings(0, True, None)).engine).__name__ == engine
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", SequentialNotice)
        members = ensemble(recipe, (1, 2), remedies=remedies)
    for member in members:
        alone = fit(recipe, remedies, seed=member.seed)
        for one, other in zip(member.model.parameters(), alone.model.parameters(), strict=True):
            assert torch.allclose(one, other, atol=2e-5)
        ours, theirs = ([row["running_loss"] for row in own.history] for own in (member, alone))
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_members_may_differ_in_the_numbers_of_their_remedies() -> None:
    lists = [[LabelSmoothing(share=share), Mixup(alpha=5 * share)] for share in (0.1, 0.3)]
    recipe = plan("Dense", 6)
    for member, own in zip(ensemble(recipe, (1, 1), remedies=lists), lists, strict=True):
        alone = fit(recipe, own, seed=1).model
        for one, other in zip(member.model.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(one, other, atol=2e-5)


def test_other_losses_and_weights_go_through_the_hooks() -> None:
    weights = torch.rand(2, 20, generator=RANDOM) + 0.5
    for loss in ("mse", "l1", nn.HuberLoss(delta=0.3)):
        recipe = plan("Dense", 6).replace(
            train=(IMAGES, F.one_hot(CLASSES, 3).float()), loss=loss, optimizer="sgd"
        )
        members = ensemble(recipe, (1, 2), remedies=[Mixup(alpha=1.0)], sample_weights=weights)
        for member, own in zip(members, weights, strict=True):
            alone = fit(recipe.replace(sample_weights=own), [Mixup(alpha=1.0)], seed=member.seed)
            for one, other in zip(member.model.parameters(), alone.model.parameters(), strict=True):
                assert torch.allclose(one, other, atol=2e-5)


def test_named_inputs_go_through_the_hooks() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 3)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.layer(pixels.flatten(1))

    recipe = plan("Dense", 6).replace(model=Named, train={"pixels": IMAGES, "label": CLASSES})
    remedies = [InputNoise(), RandomShifts()]
    for member in ensemble(recipe, (1, 2), remedies=remedies):
        alone = fit(recipe, remedies, seed=member.seed).model
        for one, other in zip(member.model.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(one, other, atol=2e-5)


def test_linear_least_squares_leave_the_gram_matrix_to_noise() -> None:
    recipe = plan("Dense", 64).replace(
        model=lambda: nn.Linear(3, 1), train=(IMAGES.flatten(1)[:, :3], CLASSES.float()), loss="mse"
    )
    (noisy,) = ensemble(recipe, [1], remedies=[InputNoise(scale=1.0)])
    alone = fit(recipe, [InputNoise(scale=1.0)], seed=1).model
    assert torch.allclose(noisy.model.weight, alone.weight, atol=1e-5)


def test_what_does_not_fit_is_refused_as_by_fit() -> None:
    recipe = plan("Dense", 6).replace(
        train=(IMAGES, CLASSES.float()[:, None].repeat(1, 3)), loss="mse"
    )
    with pytest.raises(InputError, match="must train a classification"):
        ensemble(recipe, (1, 2), remedies=[LabelSmoothing()])
