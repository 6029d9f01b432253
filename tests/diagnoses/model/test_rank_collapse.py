"""Features along a line are named; those of a collapse to a simplex are healthy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses import RankCollapse


def subject_of(spread: float, classes: int = 5) -> Subject:
    """Features of which all directions but the first have a given standard deviation."""
    random = torch.Generator().manual_seed(0)
    scales = torch.tensor([1.0] + [spread] * 7)
    x = torch.randn(200, 8, generator=random) * scales
    return Subject(nn.Linear(8, classes), "cross_entropy", (x, torch.arange(200) % classes))


@pytest.mark.parametrize(
    ("spread", "found"), [(1.0, False), (0.05, False), (0.02, True), (0.0, True)]
)
def test_a_line_is_found(spread: float, found: bool) -> None:
    finding = RankCollapse()(subject_of(spread))
    assert (finding is not None) == found
    if finding is not None:
        assert finding.evidence[0].value == pytest.approx(1, abs=0.2)
        assert finding.severity == "suspect"  # without test data there is nobody to compare


def test_full_neural_collapse_is_healthy() -> None:
    y = torch.arange(100) % 5
    corners = torch.eye(5)[y]
    net = nn.Linear(5, 5)
    assert RankCollapse()(Subject(net, "cross_entropy", (corners, y))) is None


def test_two_classes_need_one_direction_only() -> None:
    assert RankCollapse()(subject_of(0.0, classes=2)) is None


def test_more_features_than_samples_give_the_same_rank() -> None:
    random = torch.Generator().manual_seed(0)
    line = torch.randn(40, 1, generator=random) @ torch.randn(1, 90, generator=random)
    subject = Subject(nn.Linear(90, 3), "cross_entropy", (line, torch.arange(40) % 3))
    assert RankCollapse()(subject).evidence[0].value == pytest.approx(1, abs=1e-4)
