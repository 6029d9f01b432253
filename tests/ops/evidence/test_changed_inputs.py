"""Moved columns: which changed, and what putting them back gains, against the closed form."""

from __future__ import annotations

import torch
from torch import nn

from mindgap.core import Subject
from mindgap.ops.evidence.changed_inputs import gain_of_putting_back, moved_columns

EVERY = torch.arange(1000)


def subject_of(shift: float, weight: float) -> Subject:
    """A linear model that is exact on the training data; the test column moved by ``shift``."""
    x = torch.randn(2000, 2, generator=torch.Generator().manual_seed(1))
    y = x[:, :1] + weight * x[:, 1:]
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, weight]])), net.bias.zero_()
    moved = x[1000:] + torch.tensor([0.0, shift])
    return Subject(net, "mse", (x[:1000], y[:1000]), (moved, y[1000:]))


def test_the_gain_is_the_squared_error_that_the_shift_makes() -> None:
    subject = subject_of(0.7, 2.0)
    gain = gain_of_putting_back(subject, EVERY, EVERY, (1,))
    assert abs(gain - (0.7 * 2.0) ** 2 / 5) < 0.05  # the targets' variance is 5


def test_a_column_that_the_model_does_not_use_gains_nothing() -> None:
    assert gain_of_putting_back(subject_of(0.7, 0.0), EVERY, EVERY, (1,)) == 0.0
    assert gain_of_putting_back(subject_of(0.7, 2.0), EVERY, EVERY, ()) == 0.0


def test_only_columns_that_changed_are_sure() -> None:
    x = torch.randn(4000, 5, generator=torch.Generator().manual_seed(2))
    wide = x[2000:] * torch.tensor([1.0, 1.0, 2.0, 1.0, 1.0])
    found = moved_columns(x[:2000], wide + torch.tensor([0.0, 0.0, 0.0, 0.5, 0.0]))
    assert set(found.sure) == {2, 3}
    assert abs(float(found.wider[2]) - 2) < 0.1
    assert abs(float(found.moved[3]) - 0.5) < 0.1
    assert moved_columns(x[:2000], x[2000:]).sure == ()
