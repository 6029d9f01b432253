"""Errors by class: the worst one, all counts, and which class is taken for which."""

from __future__ import annotations

import torch
from torch import nn

from mindgap.core import Bar, Heatmap, Subject
from mindgap.measures import WorstClassError
from mindgap.measures.basic.worst_class_error import MOST_CLASSES


def predicted(answers: list[int], targets: list[int], classes: int) -> Subject:
    """A subject that gives these answers."""
    logits = torch.nn.functional.one_hot(torch.tensor(answers), classes).double()
    return Subject(nn.Identity(), "cross_entropy", (logits, torch.tensor(targets)))


def test_counts_and_confusion() -> None:
    result = WorstClassError()(predicted([0, 0, 1, 2, 2, 0], [0, 0, 1, 1, 1, 2], 3))
    assert result.value == 1.0
    assert result.details["wrong"] == [0, 2, 1]
    assert result.details["total"] == [2, 3, 1]
    assert result.details["confusion"] == [[2, 0, 0], [0, 1, 2], [1, 0, 0]]
    bars, matrix = result.charts
    assert isinstance(bars, Bar)
    assert bars.series[0].y == (0.0, 2 / 3, 1.0)
    assert all(
        low <= y <= high
        for low, y, high in zip(
            bars.series[0].low, bars.series[0].y, bars.series[0].high, strict=True
        )
    )
    assert isinstance(matrix, Heatmap)
    assert matrix.z == ((None, 0, 0), (0, None, 2), (1, 0, None))


def test_classes_without_samples_are_left_out() -> None:
    result = WorstClassError()(predicted([0, 1, 0, 0, 2], [0, 0, 0, 0, 2], 3))
    assert result.value == 0.25
    assert result.charts[0].names == ("0", "2")  # type: ignore[attr-defined]


def test_the_worst_of_many_classes_are_drawn_and_no_matrix() -> None:
    targets = list(range(50)) * 4
    answers = [t if k % 4 or t < 20 else (t + 1) % 50 for k, t in enumerate(targets)]
    (bars,) = WorstClassError()(predicted(answers, targets, 50)).charts
    assert isinstance(bars, Bar)
    assert len(bars.names) == MOST_CLASSES
    assert bars.wide
    rates = [float(y) for y in bars.series[0].y if y is not None]
    assert rates == sorted(rates, reverse=True)
