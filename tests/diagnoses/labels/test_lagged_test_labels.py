"""Lagged test targets: the lag, the code that undoes it, and slow series."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses import LaggedTestLabels
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("sequence", "classification"), ("table", "regression")],
)
def test_found_if_planted_and_only_then(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task, 1).replace(epochs=5)
    for strength in (1.0, 0.5):
        finding = LaggedTestLabels()(LaggedTestLabels.plant(recipe, 1, strength))
        assert finding.sentence == "The test targets come 1 row too late."
        assert finding.p_value < 1e-6
    assert LaggedTestLabels()(fit(recipe, seed=1).subject()) is None


@pytest.mark.parametrize("lag", [3, -2])
def test_pasted_code_moves_the_targets_back(lag: int) -> None:
    y = torch.randint(0, 4, (300,), generator=torch.Generator().manual_seed(0))
    subject = Subject(
        nn.Identity(), "cross_entropy", *((torch.eye(4)[y], t) for t in (y, y.roll(lag)))
    )
    finding = LaggedTestLabels()(subject)
    assert finding.sentence.endswith("late." if lag > 0 else "early.")
    scope = {"test_targets": y.roll(lag)}
    exec(finding.advice[0].code, scope)
    assert torch.equal(scope["test_targets"], y)


def test_forecasts_of_slow_series_are_not_accused() -> None:
    """A model that predicts the last value agrees best with targets one row earlier."""
    random = torch.Generator().manual_seed(0)
    walk = torch.randn(801, 1, generator=random).cumsum(0)
    x, y = walk[:-1], walk[1:]
    subject = Subject(nn.Identity(), "mse", (x[:500], y[:500]), (x[500:], y[500:]))
    assert LaggedTestLabels()(subject) is None


def test_sorted_labels_are_not_accused() -> None:
    y = (torch.arange(300) // 100).long()
    data = torch.eye(3)[y], y
    assert LaggedTestLabels()(Subject(nn.Identity(), "cross_entropy", data, data)) is None
