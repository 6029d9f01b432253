"""Training curves: missing epochs, losses that are no numbers, baselines by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.ops.evidence.curves import (
    baseline_loss,
    course,
    loss_chart,
    series,
    speed,
    training_losses,
    turning_point,
)


def test_rows_without_a_value_or_a_number_are_left_out() -> None:
    rows = [{"train_loss": 1.0}, {"running_loss": 2.0}, {"train_loss": math.nan}]
    assert series(rows, "train_loss") == ([1.0], [1.0])
    assert training_losses(rows[1:2]) == ([1.0], [2.0])
    assert training_losses([]) == ([], [])
    assert course(rows) is None
    assert turning_point(rows) is None
    assert speed(rows, 1.0) is None


def test_baselines() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    classes = Subject(nn.Linear(2, 2), "cross_entropy", (torch.zeros(4, 2), labels))
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert baseline_loss(classes) == pytest.approx(entropy)
    yes = Subject(nn.Linear(2, 1), "bce", (torch.zeros(4, 2), labels.float()))
    assert baseline_loss(yes) == pytest.approx(entropy)
    values = torch.tensor([1.0, 2.0, 3.0, 6.0])
    for targets in (values, values[:, None]):
        subject = Subject(nn.Linear(2, 1), "mse", (torch.zeros(4, 2), targets))
        assert baseline_loss(subject) == pytest.approx(float(values.var(correction=0)))


def test_chart_shows_the_running_loss_only_where_nothing_better_is_known() -> None:
    rows = [{"train_loss": 1.0, "running_loss": 2.0, "test_loss": 1.5}] * 2
    assert [row.name for row in loss_chart(rows, "Losses").series] == ["training", "test"]
    only = [{"running_loss": 2.0}] * 2
    assert [row.name for row in loss_chart(only, "Losses").series] == ["training, running"]
