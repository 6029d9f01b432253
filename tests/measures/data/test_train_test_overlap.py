"""Test samples that are training samples, found bit by bit."""

from __future__ import annotations

import torch
from torch import nn

from mindgap.core import Gallery, Subject
from mindgap.measures import TrainTestOverlap


def subject(train: torch.Tensor, test: torch.Tensor, shift: int = 0) -> Subject:
    labels = [torch.arange(len(part)) % 2 for part in (train, test)]
    return Subject(
        nn.Sequential(nn.Flatten(), nn.Linear(16, 2)),
        "cross_entropy",
        (train, labels[0]),
        (test, (labels[1] + shift) % 2),
    )


def test_copies_are_counted_and_shown() -> None:
    inputs = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    result = TrainTestOverlap(shown=3)(subject(inputs[:20], inputs[16:]))
    assert result.value == 4 / 14
    assert result.terms["count"] == 4
    assert result.details["samples"] == [0, 1, 2]
    (gallery,) = result.charts
    assert isinstance(gallery, Gallery)
    assert [sample.facts["no."] for sample in gallery.samples] == ["0", "1", "2"]
    assert all(sample.image for sample in gallery.samples)


def test_another_target_is_another_sample() -> None:
    inputs = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    result = TrainTestOverlap()(subject(inputs, inputs, shift=1))
    assert (result.value, result.charts) == (0.0, ())


def test_nothing_is_shown_if_nothing_is_wanted() -> None:
    inputs = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    result = TrainTestOverlap(shown=0)(subject(inputs, inputs))
    assert (result.value, result.charts) == (1.0, ())
