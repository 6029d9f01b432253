"""A remedy declares its vectorized form itself, so one file of a plug-in trains in an ensemble."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Remedy, Stack, TrainingState
from mindgap.core.spec import REGISTRY
from mindgap.nets import MLP
from mindgap.remedies import Dropout, GradientClipping, VarianceWeighting, WeightDecay
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.fit import fit

RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(20, 3, generator=RANDOM)
CLASSES = torch.randint(0, 3, (20,), generator=RANDOM)
RECIPE = Recipe(
    model=lambda: MLP((3, 6, 3), "tanh"), train=(INPUTS, CLASSES), epochs=4, batch_size=6
)

CENTERING = '''
"""Gradient centering."""

import torch

from mindgap.core import Remedy, option


class GradientCentering(Remedy):
    r"""Subtracts a share of its mean from the gradient of every weight matrix.

    Formula: $g \\leftarrow g - c \\bar g$

    Reading: One removes the mean; zero turns it off.

    Assumes: Nothing.

    >>> GradientCentering(share=0.0).on
    False
    """

    method = ("E5",)
    cites = ("krogh1991simple",)
    strength = "share"
    treats = frozenset({"over-fitting"})

    share: float = option(1.0, help="share of the mean that is removed; 0 is off", low=0, high=1)

    def backward(self, state, closure):
        loss = closure()
        for weight in state.model.parameters():
            if weight.ndim > 1:
                weight.grad -= self.share * weight.grad.mean()
        return loss

    @classmethod
    def vectorized(cls, members, stack):
        shares = torch.tensor([own.share for own in members])[:, None, None]
        named = stack.named(stack.gradient)
        matrices = [part for part in named.values() if part.ndim > 2]

        def center():
            for matrix in matrices:
                matrix -= shares * matrix.mean((1, 2), keepdim=True)

        return center
'''
TRAINED = """
import torch, warnings
from mindgap import Recipe, ensemble, find, fit
from mindgap.nets import MLP

warnings.simplefilter("error")
GradientCentering = find("gradient-centering")
data = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
recipe = Recipe(model=lambda: MLP((3, 6, 3), "tanh"), train=data, epochs=4, batch_size=6)
lists = [[GradientCentering(share=share)] for share in (0.2, 0.5, 1.0)]
members = ensemble(recipe, (1, 2, 3), remedies=lists)
for member, own, seed in zip(members, lists, (1, 2, 3)):
    for left, right in zip(member.model.parameters(), fit(recipe, own, seed=seed).model.parameters()):
        assert torch.allclose(left, right, atol=1e-5), (left, right)
print("equal")
"""


def vector(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def test_a_plug_in_of_one_file_is_trained_by_ensemble(tmp_path: Path) -> None:
    package, info = tmp_path / "centering", tmp_path / "centering-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / "gradient_centering.py").write_text(CENTERING)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: centering\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mindgap.specs]\ncentering = centering\n")
    done = subprocess.run(
        [sys.executable, "-c", TRAINED],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "equal\n", done.stderr


class Frozen(Remedy):
    """Acts during training in two hooks; the vectorized form stands for both."""

    strength = "share"
    share: float = 1.0

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        loss = closure()
        for weight in state.model.parameters():
            weight.grad *= 1 - self.share
        return loss

    def after_step(self, state: TrainingState) -> None:
        """Nothing; that it is written matters."""

    @classmethod
    def vectorized(cls, members: Sequence[Self], stack: Stack) -> Callable[[], None]:
        kept = stack.spread([1 - own.share for own in members])
        return lambda: stack.gradient.mul_(kept)


class Nudged(Remedy):
    """Acts after every step and has no vectorized form."""

    strength = "share"
    share: float = 1.0

    def after_step(self, state: TrainingState) -> None:
        with torch.no_grad():
            for weight in state.model.parameters():
                weight.mul_(1 - 0.01 * self.share)


class StillBiases(Remedy):
    """Leaves biases as they are, or slows them down."""

    strength = "share"
    share: float = 1.0

    @classmethod
    def vectorized(cls, members: Sequence[Self], stack: Stack) -> Callable[[], None]:
        kept = torch.tensor([1 - own.share for own in members])[:, None]
        named = stack.named(stack.gradient)
        biases = [part for name, part in named.items() if name.endswith("bias")]

        def slow() -> None:
            for bias in biases:
                bias.mul_(kept)

        return slow


for invented in (Frozen, Nudged, StillBiases):
    del REGISTRY["remedy"][invented.name]  # the contracts are for the package's own remedies


ENGINES = {
    "dense": (lambda: MLP((3, 6, 3), "tanh"), INPUTS, 6),
    "Gram": (lambda: nn.Linear(3, 3), INPUTS, 64),
    "general": (lambda: MLP((3, 6, 3), norm="layer"), INPUTS, 6),
    "convolutional": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3)),
        torch.randn(20, 1, 8, 8, generator=RANDOM),
        6,
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_stack_names_every_parameter_in_every_engine(engine: str) -> None:
    """Frozen by name: the biases of the first member stay, those of the second move."""
    model, inputs, batch_size = ENGINES[engine]
    recipe = Recipe(model=model, train=(inputs, F.one_hot(CLASSES, 3).float()), loss="mse")
    recipe = recipe.replace(epochs=2, batch_size=batch_size, optimizer="sgd", learning_rate=0.1)
    still, moving = ensemble(recipe, (1, 1), remedies=[[StillBiases()], [StillBiases(share=0.5)]])
    began = dict(recipe.build(1).named_parameters())
    for name, weight in still.model.named_parameters():
        assert torch.equal(weight, began[name]) == name.endswith("bias"), name
    for name, weight in moving.model.named_parameters():
        assert not torch.equal(weight, began[name]), name


def test_a_vectorized_form_stands_for_all_hooks() -> None:
    still, moving = ensemble(RECIPE.replace(optimizer="sgd"), (1, 1), remedies=[[Frozen()], []])
    assert torch.equal(vector(still.model), vector(RECIPE.build(1)))
    assert not torch.equal(vector(moving.model), vector(RECIPE.build(1)))


def test_a_hook_without_a_vectorized_form_is_refused_with_the_reason() -> None:
    reason = r"the remedy nudged acts during training \(its hook after_step\)"
    with pytest.warns(SequentialNotice, match=reason):
        (member,) = ensemble(RECIPE, [1], remedies=[Nudged()])
    assert torch.equal(vector(member.model), vector(fit(RECIPE, [Nudged()], seed=1).model))


def test_finish_runs_on_every_member_with_its_data_and_seed() -> None:
    weighting = VarianceWeighting(k=5, max_weight=4.0, solver="minibatch", epochs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SequentialNotice)
        members = ensemble(RECIPE, (1, 2), remedies=[weighting])
    for member in members:
        alone = fit(RECIPE, [weighting], seed=member.seed)
        assert torch.allclose(vector(member.model), vector(alone.model), atol=1e-4)


def test_members_that_differ_in_more_than_numbers_are_trained_apart() -> None:
    lists = [[WeightDecay(decay=0.3)], [WeightDecay(decay=0.3, decoupled=False)]]
    for member, own in zip(ensemble(RECIPE, (1, 1), remedies=lists), lists, strict=True):
        assert torch.allclose(
            vector(member.model), vector(fit(RECIPE, own, seed=1).model), atol=1e-5
        )


def test_hooks_are_those_that_a_remedy_writes() -> None:
    assert Dropout.hooks() == {"prepare", "finish"}
    assert GradientClipping.hooks() == {"backward", "vectorized"}
    assert Nudged.hooks() == {"after_step"}
