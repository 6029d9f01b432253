"""Three claims of the slides: costs that are counted exactly, optimizers, and shares of variance."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from mindgap.core import InputError, Trial
from mindgap.core.stats import holm, paired
from mindgap.nets import MLP
from mindgap.studies.claims.copied_data import CopiedData
from mindgap.studies.claims.stronger_optimizer import (
    CONTROLS,
    SETTINGS,
    StrongerOptimizer,
    quasi_newton,
)
from mindgap.studies.claims.what_generalizes import (
    FACTORS,
    WhatGeneralizes,
    one_at_a_time,
    variance_shares,
)
from mindgap.studies.double_descent.features import noisy_digits


def test_copies_double_the_cost_of_a_full_batch_and_change_no_step() -> None:
    study = CopiedData(samples=60, copies=(1, 2, 3), target=1.0)
    found = {
        copies: study.run(Trial(parameters={"method": "full batch", "copies": copies}, seed=1))
        for copies in study.copies
    }
    assert found[1]["reached"]
    assert {record["steps"] for record in found.values()} == {found[1]["steps"]}
    assert [record["gradients"] for record in found.values()] == [
        copies * 60 * found[1]["steps"] for copies in study.copies
    ]
    batch = study.run(Trial(parameters={"method": "SGD", "copies": 3}, seed=1))
    assert batch["gradients"] == 32 * batch["steps"]


def test_ratios_of_costs_are_paired_by_seed() -> None:
    costs = {("full batch", 1): (100, 200, 400), ("full batch", 2): (200, 400, 800)}
    costs |= {("SGD", 1): (100, 200, 400), ("SGD", 2): (110, 180, 410)}
    study = CopiedData(seeds=3, copies=(1, 2))
    made = [
        (
            trial,
            {
                "steps": 1,
                "gradients": costs[trial["method"], trial["copies"]][trial.seed],
                "reached": trial.seed > 0,
            },
        )
        for trial in study.trials()
    ]
    table = study.summarize(made)
    rows = {row[:2]: row for row in table.rows}
    assert rows["full batch", 2][4:] == (2.0, *[pytest.approx(2.0)] * 3)
    wanted = (1.1 * 0.9 * 1.025) ** (1 / 3)
    assert rows["SGD", 2][4:6] == (1.0, pytest.approx(wanted))
    assert rows["SGD", 2][6] < wanted < rows["SGD", 2][7]
    assert rows["SGD", 1][5] is None
    assert "Runs that do not reach the target: 4 of 12." in table.notes


def test_quasi_newton_lowers_the_loss_within_its_budget() -> None:
    data = noisy_digits(40, 0.2, 0)
    train = data.inputs, data.labels
    losses, counts = [], []
    for budget in (3, 12):
        torch.manual_seed(0)
        model = MLP((64, 8, 10))
        counts.append(quasi_newton(model, train, memory=5, evaluations=budget))
        losses.append(functional.cross_entropy(model(train[0]), train[1]).item())
    assert losses[1] < losses[0] < math.log(10)
    assert 3 <= counts[0] < counts[1]
    assert counts[1] <= 12 + 25  # the last line search ends


def test_an_arm_is_tuned_on_training_data_only(monkeypatch: Any) -> None:
    study = StrongerOptimizer(samples=32, width=4, passes=2, batch_size=16)
    trial = Trial(parameters={"noise": 0.0, "arm": "Adam", "passes": 8}, seed=0)
    found = study.run(trial)
    alone = []
    for setting in SETTINGS["Adam"]:
        monkeypatch.setitem(SETTINGS, "Adam", (setting,))
        alone.append(study.run(trial))
    assert found == min(alone, key=lambda record: record["train_loss"])
    assert found["gradients"] == 8 * 32


def test_budgets_are_compared_in_pairs_with_holm() -> None:
    study = StrongerOptimizer(seeds=4, noise=(0.2,))
    wobble = (0.0, 0.01, -0.01, 0.005)

    def record(trial: Trial) -> dict[str, float]:
        strong = trial["arm"] == "L-BFGS"
        spread = wobble[trial.seed] * (1 if trial["arm"] != "Adam" else -1)
        return {
            "setting": 1.0,
            "gradients": 100,
            "train_loss": 10.0 ** (-5 * strong + spread),
            "train_error": 0.0,
            "test_loss": 1.0,
            "test_error": 0.2 + 0.1 * strong + spread,
        }

    table = study.summarize([(trial, record(trial)) for trial in study.trials()])
    told = [note for note in table.notes if "minus" in note]
    assert len(told) == 3 * len(CONTROLS)
    assert sum("equal CPU, 96 and 24 gradients per digit" in note for note in told) == len(CONTROLS)
    assert all("stronger as an optimizer, a worse learner." in note for note in told)
    assert all("+10.00 points" in note for note in told if "minus SGD" in note)


def test_shares_of_variance_are_those_of_brute_force_and_sum_to_one() -> None:
    random = np.random.default_rng(0)
    table = random.normal(size=(2, 3, 4)) + 5 * np.arange(3)[None, :, None]
    shares = variance_shares(table)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
    for axis, levels in enumerate(table.shape):
        means = [table.take(level, axis).mean() for level in range(levels)]
        assert shares[axis,] == pytest.approx(np.var(means) / table.var(), abs=1e-12)
    # The interaction of two factors is what their cell means leave over their main effects.
    cells = table.mean(2)
    left = cells - cells.mean(0) - cells.mean(1, keepdims=True) + cells.mean()
    assert shares[0, 1] == pytest.approx((left**2).mean() / table.var(), abs=1e-12)
    additive = np.add.outer([0.0, 1.0], [0.0, 3.0, 6.0])
    assert variance_shares(additive)[0, 1] == pytest.approx(0, abs=1e-12)


LEVELS = {"activation": ("relu", "tanh"), "depth": (2, 1), "batch size": (32, 8)}
LEVELS |= {"initial scale": (1.0, 4.0)}


def factorial() -> dict[tuple[Any, ...], Any]:
    """Test errors in which depth adds a tenth, the scale a fifth and nothing else anything."""
    return {
        cell: {
            "train_error": [0.0, 0.1 * (cell[3] == 4.0), 0.0],
            "test_error": [
                0.1 + 0.1 * (cell[1] == 1) + 0.2 * (cell[3] == 4.0) + 0.01 * seed * (cell[1] == 1)
                for seed in range(3)
            ],
        }
        for cell in itertools.product(*LEVELS.values())
    }


def test_one_factor_at_a_time_is_paired_with_the_base() -> None:
    found = factorial()
    rows = {(row[0], row[1]): row for row in one_at_a_time(LEVELS, found, overlap=0.2)}
    assert set(rows) == {
        ("base", "relu, 2, 32, 1.0"),
        *((name, own[1]) for name, own in LEVELS.items()),
    }
    test = paired([0.2, 0.21, 0.22], [0.1] * 3, overlap=0.2)
    assert rows["depth", 1][4] == pytest.approx(test.difference)
    assert rows["depth", 1][5].low == pytest.approx(test.interval.low)
    assert rows["depth", 1][6] == pytest.approx(holm([0.0, test.p_value, 1.0, 1.0])[1])
    assert rows["batch size", 8][4] == 0


def test_the_table_ranks_the_factors_and_names_runs_that_do_not_fit() -> None:
    study = WhatGeneralizes(
        seeds=3,
        activations=LEVELS["activation"],
        depths=LEVELS["depth"],
        batch_sizes=LEVELS["batch size"],
        scales=LEVELS["initial scale"],
    )
    found = factorial()
    made = [(trial, found[tuple(trial[name] for name in FACTORS)]) for trial in study.trials()]
    table = study.summarize(made)
    shares = {row[0]: row[7] for row in table.rows if row[7] is not None}
    wanted = [
        0.2**2 / ((0.1 + 0.01 * seed) ** 2 + 0.2**2) for seed in range(3)
    ]  # both effects are halved, and the others are zero
    assert shares["initial scale"] == pytest.approx(np.mean(wanted))
    assert shares["activation"] == pytest.approx(0, abs=1e-12)
    assert any("largest first: initial scale" in note for note in table.notes)
    assert any("above 0: 8 of 48" in note and "4.0: 8" in note for note in table.notes)
    part = study.summarize(made[:5])
    assert any("need all combinations" in note for note in part.notes)
    with pytest.raises(InputError, match="at least two levels"):
        study.replace(depths=(1,)).prepare()
