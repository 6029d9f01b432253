"""The comparison of remedies and of noise: choice on validation data, pairs, verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from mindgap.core import Trial
from mindgap.core.stats import holm, paired
from mindgap.remedies import EarlyStopping, WeightDecay
from mindgap.studies.overfitting.noise import ARMS, OverfittingNoise
from mindgap.studies.overfitting.problems import problem
from mindgap.studies.overfitting.remedies import CONTROL, OverfittingRemedies


def run(validation: float, test: float) -> dict[str, float]:
    return {"train": 0.0, "validation": validation, "test": test}


def records(arm: list[float], control: list[float]) -> list[tuple[Trial, Any]]:
    """An arm whose second setting has the best validation error, whatever its test error."""
    study = OverfittingRemedies(seeds=len(arm))
    trials = [trial for trial in study.trials() if trial["problem"] == "curve"]
    return [
        (
            trial,
            {
                CONTROL: [run(0.5, control[k]), run(0.9, 0.0), run(0.8, 0.0)],
                "dropout": [run(0.7, 0.0), run(0.4, arm[k]), run(0.6, 0.0)],
                "weight decay": [run(0.1, control[k] + 0.01 * (-1) ** k)] * 3,
            },
        )
        for k, trial in enumerate(trials)
    ]


def test_settings_are_chosen_on_validation_data_and_compared_in_pairs() -> None:
    arm, control = [0.31, 0.42, 0.50, 0.61, 0.33], [0.40, 0.50, 0.61, 0.70, 0.41]
    table = OverfittingRemedies(seeds=5).summarize(records(arm, control))
    rows = {row[1]: row for row in table.rows}
    found = paired(arm, control)
    other = paired([c + 0.01 * (-1) ** k for k, c in enumerate(control)], control)
    assert rows["dropout"][2] == "dropout, rate 0.3"
    assert rows["dropout"][5:9] == (
        pytest.approx(sum(arm) / 5),
        pytest.approx(found.difference),
        pytest.approx(found.interval.low),
        pytest.approx(found.interval.high),
    )
    assert rows["dropout"][9] == pytest.approx(holm([found.p_value, other.p_value])[0])
    assert rows["dropout"][-1] == "helps"
    assert rows["weight decay"][-1] == "not shown"
    assert rows[CONTROL][2] == "learning rate × 1"


def test_a_run_that_diverged_is_never_chosen() -> None:
    broken = records([0.3] * 5, [0.4] * 5)
    for _, record in broken:
        record["dropout"][1] = {"train": None, "validation": None, "test": None}
    table = OverfittingRemedies(seeds=5).summarize(broken)
    assert {row[1]: row[2] for row in table.rows}["dropout"] == "dropout, rate 0.5"


def test_the_curve_over_fits_and_remedies_are_applied() -> None:
    made = problem("curve", (20, 200, 200), seed=1, epochs=60, width=32)
    plain = made.trained(1)
    assert plain["train"] < plain["test"]
    assert made.trained(1) == plain
    assert made.trained(1, [WeightDecay(decay=1.0)])["train"] > plain["train"]
    assert made.trained(1, [EarlyStopping(patience=2)])["train"] > plain["train"]


def test_noise_that_is_too_strong_is_named() -> None:
    study = OverfittingNoise(seeds=4)

    def errors(strength: int, seed: int) -> dict[str, float]:
        return {
            "train": 0.1 * strength,
            "validation": 0.0,
            "test": 0.1 + 0.2 * strength + 0.01 * seed,
        }

    made = [
        (
            trial,
            {
                "none": {"train": 0.0, "validation": 0.0, "test": 0.1 + 0.011 * trial.seed},
                **{
                    arm: [errors(k, trial.seed) for k in range(len(own))]
                    for arm, own in ARMS.items()
                },
            },
        )
        for trial in study.trials()
    ]
    rows = study.summarize(made).rows
    assert rows[0][0] == "none"
    verdicts = {row[:2]: row[-1] for row in rows}
    assert verdicts["dropout rate", 0.25] == "not shown"
    assert verdicts["dropout rate", 0.97] == "too strong"
