"""The histogram that comes with the margin."""

from __future__ import annotations

import torch
from torch import nn

from mindgap.core import Histogram, Subject
from mindgap.measures import Margin


def test_the_histogram_counts_every_sample() -> None:
    random = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(90, 3, generator=random), torch.arange(90) % 3
    subject = Subject(
        nn.Identity(), "cross_entropy", (inputs[:60], labels[:60]), (inputs[60:], labels[60:])
    )
    (chart,) = Margin()(subject).charts
    assert isinstance(chart, Histogram)
    assert {name: sum(counts) for name, counts in chart.counts.items()} == {
        "training data": 60,
        "test data": 30,
    }
    below = sum(
        count
        for edge, count in zip(chart.edges[1:], chart.counts["training data"], strict=True)
        if edge < 0
    )
    assert below <= int((subject.margins("train") < 0).sum())
