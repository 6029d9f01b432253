"""The study of DARC1 chooses on validation data alone and compares with the right control."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mindgap.core.study import Trial
from mindgap.data import DataSet
from mindgap.studies.darc import darc1, problems
from mindgap.studies.darc.darc1 import DARC1, PLAIN, Arm, best, compared, methods
from mindgap.studies.darc.problems import Problem, error, ratio


def images(size: int, test_size: int, seed: int) -> DataSet:
    """Invented images whose brightness tells the class."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.arange(size + test_size) % 10
    inputs = torch.rand(len(targets), 1, 4, 4, generator=random) + targets.view(-1, 1, 1, 1) / 10
    return DataSet("images", inputs[:size], targets[:size], inputs[size:], targets[size:])


def test_the_setting_is_chosen_on_validation_data_whatever_the_test_data_say() -> None:
    runs = {
        Arm("DARC1", "λ = 0.03", 0.003): {"validation": [0.2, 0.3], "test": [0.5, 0.6]},
        Arm("DARC1", "λ = 0.1", 0.003): {"validation": [0.3, 0.25], "test": [0.1, 0.1]},
    }
    base = Arm(PLAIN, "", 0.003), {"validation": [0.3, 0.3], "test": [0.4, 0.5]}
    assert best(runs)[0].setting == "λ = 0.03"
    row = compared("MNIST", "same rate", runs, base)
    assert row[:4] == ("MNIST", "DARC1", "same rate", "λ = 0.03, rate 0.003")
    assert row[7] == pytest.approx(0.55 / 0.45)
    assert row[10] == pytest.approx(0.3 / 0.45)  # seed by seed: the first, then the second setting
    assert (row[6], row[11]) == (0.89, 0.61)
    assert row[12] == pytest.approx(1.0)
    assert row[13] == pytest.approx(np.std([0.5 / 0.4, 0.6 / 0.5], ddof=1))


def test_rows_compare_with_the_same_rate_and_with_the_retuned_baseline() -> None:
    study, records = DARC1(seeds=2), []
    for number, arm in enumerate(study.arms()):
        parameters = {"problem": "CIFAR-10", **arm.key}
        values = [0.5 - 0.01 * number, 0.51 - 0.01 * number]
        records.append((Trial(parameters=parameters), {"validation": values, "test": values}))
    table = study.summarize(records)
    assert len(table.rows) == 1 + 2 * len(methods())
    retuned, same, tuned = table.rows[:3]
    assert retuned[1:4] == ("learning rate retuned", "rate only", "rate 0.03")
    assert retuned[4] == pytest.approx(0.495)  # the plain loss at the first rate
    assert (same[4], tuned[4]) == pytest.approx((0.495, 0.475))
    assert same[3].endswith("rate 0.003")
    assert tuned[3].endswith("rate 0.01")


def test_a_trial_trains_every_seed_and_judges_both_parts(monkeypatch) -> None:
    monkeypatch.setitem(problems.PROBLEMS, "MNIST", Problem(load=images))
    study = DARC1(seeds=3, samples=40, validation_samples=20, test_samples=30, epochs=30, width=8)
    parameters = {"problem": "MNIST", "method": "DARC1", "setting": "λ = 0.1", "rate": 0.03}
    found = study.run(Trial(parameters=parameters))
    assert {name: len(values) for name, values in found.items()} == {"validation": 3, "test": 3}
    assert len(set(found["test"])) > 1
    assert max(found["validation"]) < 0.9
    assert darc1.EXPECTED["MNIST, shifted, ratio"] == 0.95


def test_errors_and_ratios() -> None:
    answers = torch.eye(3)[torch.tensor([0, 1, 2, 2])]
    assert error(torch.nn.Identity(), (answers, torch.tensor([0, 1, 2, 0]))) == 0.25
    value, interval = ratio([0.1, 0.2], [0.2, 0.4])
    assert value == pytest.approx(0.5)
    assert interval.low == pytest.approx(0.5)
    assert interval.high == pytest.approx(0.5)
