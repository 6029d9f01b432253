"""Retrained heads against reference solutions, and choices that see validation data only."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.ops.convex.heads import solve_heads
from mindgap.ops.convex.minibatch import Minibatch
from mindgap.ops.variance.local import local_variance
from mindgap.studies.vbsw.heads import (
    MINIBATCH,
    HeadParts,
    exact_arms,
    head_parts,
    head_weights,
    minibatch_arms,
)
from mindgap.training.fit import fit

GRID = [(2.0, 5), (10.0, 5), (40.0, 10)]


def cloud(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three classes that overlap, so that settings differ."""
    random = torch.Generator().manual_seed(seed)
    classes = torch.randint(3, (samples,), generator=random)
    centers = torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.5, 1.0]])
    return centers[classes] + torch.randn(samples, 2, generator=random), classes


def parts(**changes: Any) -> HeadParts:
    made = HeadParts(
        train=cloud(90, 0), validation=cloud(200, 1), test=cloud(200, 2), head=nn.Linear(2, 3)
    )
    return dataclasses.replace(made, **changes)


def test_weights_are_those_of_the_local_variance_and_the_control_moves_them_alike() -> None:
    features, classes = cloud(90, 0)
    found = head_weights((features, classes), GRID, GRID[2], seed=3)
    variance = local_variance(features, classes, k=10).variance
    assert torch.allclose(found.own, 1 + 39 * variance / variance.max())
    assert torch.equal(found.mixed.sort(1).values, found.rows.sort(1).values)
    assert not torch.equal(found.mixed, found.rows)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(3))
    assert torch.equal(found.mixed, found.rows[:, order])


def test_the_published_setting_must_be_in_the_grid() -> None:
    with pytest.raises(InputError, match=r"must hold the published one"):
        head_weights(cloud(30, 0), GRID, (7.0, 5), seed=0)


def test_exact_arms_equal_heads_that_are_solved_one_by_one() -> None:
    data = parts()
    weights = head_weights(data.train, GRID, GRID[2], seed=0)
    found = exact_arms(data, weights)

    def right(row: Tensor, rows: tuple[Tensor, Tensor]) -> float:
        outputs = solve_heads("softmax", *data.train, row).outputs(rows[0])[0]
        return 100 * float((outputs.argmax(1) == rows[1]).double().mean())

    assert found.accuracy["no weights"] == right(torch.ones(90), data.test)
    assert found.accuracy["VBSW"] == right(weights.own, data.test)
    assert found.accuracy["permuted"] == right(weights.mixed[2], data.test)
    for arm, rows in (("VBSW", weights.rows), ("permuted", weights.mixed)):
        scores = [right(row, data.validation) for row in rows]
        place = GRID.index(found.chosen[arm])
        assert scores[place] == max(scores)
        assert found.accuracy[f"{arm}, chosen"] == right(rows[place], data.test)
    assert found.converged == 1


def test_the_choice_sees_validation_data_alone() -> None:
    data = parts()
    weights = head_weights(data.train, GRID, GRID[0], seed=0)
    found = exact_arms(data, weights)
    other = exact_arms(dataclasses.replace(data, test=cloud(200, 77)), weights)
    assert other.chosen == found.chosen
    assert other.accuracy != found.accuracy
    choices = {
        exact_arms(dataclasses.replace(data, validation=cloud(200, seed)), weights).chosen["VBSW"]
        for seed in range(12)
    }
    assert len(choices) > 1


def test_minibatch_arms_equal_plain_training() -> None:
    data, settings = parts(), Minibatch(epochs=3)
    weights = head_weights(data.train, GRID, GRID[2], seed=0)
    found = minibatch_arms(data, weights, [4, 9], settings)
    assert tuple(found) == MINIBATCH
    average = float(weights.own.mean())
    cases: dict[str, tuple[Tensor | None, float]] = {
        "no weights": (None, 1e-3),
        "VBSW": (weights.own, 1e-3),
        "permuted": (weights.mixed[2], 1e-3),
        "step × mean weight": (None, 1e-3 * average),
    }
    for arm, (row, rate) in cases.items():
        recipe = Recipe(
            model=lambda: nn.Linear(2, 3),
            train=data.train,
            epochs=3,
            batch_size=25,
            learning_rate=rate,
        )
        model = fit(recipe.replace(sample_weights=row), seed=9).model
        right = (model(data.test[0]).argmax(1) == data.test[1]).double().mean()
        assert found[arm][1] == pytest.approx(100 * float(right))


def test_parts_are_the_inputs_of_the_head() -> None:
    model = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3))
    train, validation, test = cloud(20, 0), cloud(10, 1), cloud(10, 2)
    found = head_parts(model, train, validation, test)
    assert found.head is model[2]
    assert found.classes == 3
    assert torch.allclose(found.validation[0], model[:2](validation[0]))
    assert torch.equal(found.test[1], test[1])
