"""The runs behind a decomposition, on a linear class where every minimum is known."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn

from mindgap.core import InputError, Recipe
from mindgap.data.sources import Source, drawn, source
from mindgap.remedies import EarlyStopping
from mindgap.training.decomposition.runs import Decomposed, Plan, decomposed

PLAN = Plan(
    draws=5, restarts=2, references=2, large=2000, pool=2000, steps=150, polish=20, rate=0.05
)
SLOPE, NOISE = 2.0, 0.5


def draw(size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """y = 2x + x² + noise: the best line has slope 2 and intercept 1, and misses x² by variance 2."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 1, generator=random)
    return x, SLOPE * x + x**2 + NOISE * torch.randn(size, 1, generator=random)


def recipe(**changes: object) -> Recipe:
    data = torch.zeros(2, 1), torch.zeros(2, 1)
    fields = {"epochs": 20, "batch_size": 10, "learning_rate": 0.02}
    return Recipe(model=lambda: nn.Linear(1, 1), train=data, loss="mse", **(fields | changes))


@functools.cache
def lines() -> Decomposed:
    known = Source(name="line", samples=drawn(draw).samples, best=lambda x: SLOPE * x + x**2)
    (row,) = decomposed(recipe(), known, [20], PLAN)
    return row


def test_minimizers_are_those_of_least_squares() -> None:
    row = lines()
    sets = drawn(draw).samples([2000, 2000, 2000, *[20] * 5], 0)[3:]
    for (x, y), value in zip(sets, row.losses.minimizer_train.tolist(), strict=True):
        design = torch.cat([x, torch.ones_like(x)], 1).double()
        weights = torch.linalg.lstsq(design, y.double()).solution
        least = float((design @ weights - y.double()).square().mean())
        assert value == pytest.approx(least, rel=1e-6)


def test_terms_are_those_of_the_line() -> None:
    approximation, estimation, optimization = lines().losses.excess
    assert approximation.interval.low <= 2.0 <= approximation.interval.high
    assert estimation.value > 0
    assert optimization.value > 0  # 40 steps at a rate of 0.02 do not reach a slope of 2
    assert lines().losses.gap.value > 0


def test_runs_never_end_below_their_minimizer() -> None:
    assert bool((lines().losses.run_train >= lines().losses.minimizer_train - 1e-9).all())


def test_the_curve_ends_where_the_run_ends() -> None:
    row = lines()
    assert row.curve.epochs[-1] == 20
    assert torch.allclose(row.curve.risk[:, -1], row.losses.run.mean(1), atol=1e-4)
    last = row.over_time()[-1][1]
    assert last["tolerance"][0] == pytest.approx(row.losses.gap.value, abs=1e-4)


def test_a_looser_tolerance_stops_earlier() -> None:
    row = lines()
    worst = float((row.curve.train[:, -1] - row.losses.minimizer_train).max())
    assert row.at_tolerance(worst / 2) is None
    tight, loose = row.at_tolerance(1.01 * worst), row.at_tolerance(3 * worst)
    assert loose[0] <= tight[0]


def test_the_risk_can_be_the_share_of_wrong_answers() -> None:
    plan = recipe().replace(model=lambda: nn.Linear(2, 2), loss="cross_entropy")
    few = Plan(
        draws=2, restarts=1, references=1, large=500, pool=2000, steps=60, polish=5, rate=0.05
    )
    (row,) = decomposed(plan, source("gaussian-mixture"), [30], few, risk="error")
    approximation = row.losses.excess[0]
    assert approximation.interval.low <= 0.02  # a linear classifier is the best predictor
    assert abs(approximation.value) < 0.02


def test_a_run_that_stops_early_keeps_its_last_point() -> None:
    few = Plan(draws=2, restarts=1, references=1, large=100, pool=100, steps=10, polish=1)
    (row,) = decomposed(
        recipe(epochs=40, learning_rate=0.3),
        drawn(draw),
        [20],
        few,
        remedies=[EarlyStopping(patience=1)],
    )
    assert row.curve.risk.shape == row.curve.train.shape == (2, len(row.curve.epochs))
    assert row.losses.floor is None


def test_divergence_is_told() -> None:
    few = Plan(draws=2, restarts=1, references=1, large=100, pool=100, steps=5, polish=0)
    with pytest.raises(InputError, match="divergence"):
        decomposed(recipe(optimizer="sgd", learning_rate=1e9), drawn(draw), [20], few)


def test_nothing_of_the_user_is_changed() -> None:
    state = torch.get_rng_state()
    before = copy.deepcopy(recipe().train)
    lines.cache_clear()
    lines()
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(before[0], recipe().train[0])
