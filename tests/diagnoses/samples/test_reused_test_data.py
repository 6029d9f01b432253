"""Reused test data: the limit covers the best of many models, the limit for one does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mindgap.core import InputError, Subject, binomial_tail_inverse
from mindgap.diagnoses import ReusedTestData
from mindgap.studies.diagnoses.healthy import healthy_recipe


def subject_of(judged: int, task: str = "classification", count: int = 200) -> Subject:
    x = torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
    data = (x, (x[:, 0] > 0).long()) if task == "classification" else (x, x[:, :1])
    outputs, loss = (2, "cross_entropy") if task == "classification" else (1, "mse")
    return Subject(nn.Linear(2, outputs), loss, data, data, judged=judged)


def test_one_model_is_no_finding() -> None:
    assert ReusedTestData()(subject_of(1)) is None


def test_number_of_models_is_checked() -> None:
    with pytest.raises(InputError, match="judged"):
        subject_of(0)


def test_numbers() -> None:
    subject = subject_of(20)
    finding = ReusedTestData()(subject)
    errors = int(subject.errors("test").sum())
    values = {row.name: row.value for row in finding.evidence}
    assert values["for 20 models"] == binomial_tail_inverse(errors, 200, 0.05 / 20)
    assert values["models compared"] == 20
    rate = (errors + 1) / 202
    hidden = (2 * np.log(20) * rate * (1 - rate) / 200) ** 0.5
    assert values["what the choice may hide"] == pytest.approx(hidden)


def test_the_bias_of_the_best_is_covered() -> None:
    """Simulated: what the best of m equal models hides is below the formula, on average."""
    random, rate, count = np.random.default_rng(0), 0.2, 200
    for models in (2, 10, 100):
        best = random.binomial(count, rate, (4000, models)).min(1) / count
        limit = (2 * np.log(models) * rate * (1 - rate) / count) ** 0.5
        # Of two normal numbers the larger one is 0.56 above the mean; the formula says 1.18.
        assert 0.45 * limit < rate - best.mean() < limit


def test_guarantee_holds_for_the_best_and_the_single_one_does_not() -> None:
    random, rate, count, models = np.random.default_rng(1), 0.2, 200, 20
    best = random.binomial(count, rate, (2000, models)).min(1)
    seen, times = np.unique(best, return_counts=True)
    below = [
        sum(times[[binomial_tail_inverse(int(k), count, delta) < rate for k in seen]]) / len(best)
        for delta in (0.05, 0.05 / models)
    ]
    assert below[1] <= 0.05 < below[0]


def test_a_large_test_set_is_a_note() -> None:
    assert ReusedTestData()(subject_of(2, count=20_000)).severity == "note"


def test_regression_has_no_binomial_limit() -> None:
    finding = ReusedTestData()(subject_of(20, "regression"))
    assert not [row for row in finding.evidence if "guaranteed" in row.name]


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plant(kind: str) -> None:
    subject = ReusedTestData.plant(healthy_recipe(kind).replace(epochs=3), seed=1)
    assert subject.judged == 20
    assert ReusedTestData()(subject).severity == "suspect"
