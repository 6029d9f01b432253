"""Leave-one-out stability against n separate trainings, and what it says about the gap."""

import math

import numpy as np
import pytest
import torch

from mindgap.core import Recipe, Subject
from mindgap.measures import LeaveOneOutStability
from mindgap.nets import MLP
from mindgap.training.fit import fit


def problem(samples: int = 20) -> Recipe:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(samples + 200, 3, generator=random, dtype=torch.float64)
    y = x.sum(1, keepdim=True).sin() + 0.3 * torch.randn(
        samples + 200, 1, generator=random, dtype=torch.float64
    )
    return Recipe(
        model=lambda: MLP((3, 6, 1)).double(),
        train=(x[:samples], y[:samples]),
        test=(x[samples:], y[samples:]),
        loss="mse",
        epochs=30,
        batch_size=samples,
        learning_rate=0.02,
    )


def test_equals_one_training_after_the_other() -> None:
    recipe = problem().replace(epochs=3, batch_size=5, learning_rate=0.1)
    result = LeaveOneOutStability(delta=0.1)(fit(recipe, seed=2).subject())
    whole, rises, changes, most = fit(recipe, seed=2).subject(), [], [], 0.0
    before = [whole.losses(which).numpy() for which in ("train", "test")]
    for place in range(20):
        weights = torch.ones(20)
        weights[place] = 0
        other = fit(recipe.replace(sample_weights=weights), seed=2, evaluate_every=0).subject()
        after = [other.losses(which).numpy() for which in ("train", "test")]
        rises.append(after[0][place] - before[0][place])
        changes.append([np.abs(a - b).max() for a, b in zip(after, before, strict=True)])
        most = max(most, *(part.max() for part in after))
    beta = np.max(changes)
    assert min(rises) < 0 < max(rises)  # the mean is not one of absolute values
    assert result.value == pytest.approx(np.mean(rises), rel=1e-6)
    assert result.standard_error == pytest.approx(np.std(rises, ddof=1) / math.sqrt(20), rel=1e-6)
    assert result.terms["uniform"] == pytest.approx(beta, rel=1e-6)
    assert result.terms["uniform_test"] == pytest.approx(np.max(changes, 0)[1], rel=1e-6)
    deviation = math.sqrt(math.log(10) / 40)
    wanted = before[0].mean() + 2 * beta + (80 * beta + most) * deviation
    assert result.terms["bound"] == pytest.approx(wanted, rel=1e-6)
    assert result.terms["reproduction"] < 1e-9
    assert result.details["vacuous"]
    assert not result.details["certificate"]
    assert result.details["samples"][0] == {
        "index": int(np.argmax(rises)),
        "rise": pytest.approx(max(rises)),
    }


def test_is_about_the_gap() -> None:
    result = LeaveOneOutStability()(fit(problem(80)).subject())
    assert abs(result.value - result.terms["gap"]) < 4 * result.standard_error


def test_says_when_the_bound_is_not_vacuous() -> None:
    """One constant for many samples: stable enough for the theorem."""

    class Constant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = torch.nn.Parameter(torch.zeros(1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.value.expand(len(x), 1)

    x, y = torch.zeros(4000, 1), (torch.arange(4000) % 4 == 0).float()[:, None]
    recipe = Recipe(
        model=Constant,
        train=(x, y),
        loss="mse",
        optimizer="sgd",
        learning_rate=0.5,
        epochs=3,
        batch_size=4000,
    )
    result = LeaveOneOutStability(removals=5)(fit(recipe).subject())
    assert not result.details["vacuous"]
    assert result.terms["bound"] < result.terms["largest_loss"]


def test_removes_no_more_than_asked_and_says_what_it_lacks() -> None:
    recipe = problem()
    assert LeaveOneOutStability(removals=3)(fit(recipe).subject()).terms["removed"] == 3
    bare = LeaveOneOutStability()(Subject(recipe.build(0), "mse", recipe.train))
    assert "needs the recipe" in bare.reason
    endless = Subject(recipe.build(0), "mse", recipe.train, recipe=recipe.replace(epochs=10**10))
    assert "lower removals" in LeaveOneOutStability()(endless).reason
