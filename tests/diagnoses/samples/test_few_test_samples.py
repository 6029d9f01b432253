"""Few test samples: exact limits, clear gaps, and how many samples would settle it."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Subject, proportion_interval
from mindgap.diagnoses import FewTestSamples
from mindgap.studies.diagnoses.healthy import healthy_recipe


class Sign(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * torch.cat([-inputs, inputs], 1)


def subject_of(count: int, wrong: int, train_wrong: int = 0) -> Subject:
    """A classifier with so many errors."""

    def split(size: int, errors: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(size) % 2
        flipped = torch.where(torch.arange(size) < errors, 1 - labels, labels)
        return (2.0 * flipped - 1)[:, None], labels

    return Subject(Sign(), "cross_entropy", split(1000, train_wrong), split(count, wrong))


@pytest.mark.parametrize(
    ("count", "wrong", "severity"),
    [
        (20, 0, "wrong"),
        (30, 1, "wrong"),
        (60, 0, "suspect"),
        (100, 0, None),  # 3.6 points: little enough
        (60, 30, None),  # a clear gap
        (399, 2, None),
        (500, 10, None),
    ],
)
def test_severity(count: int, wrong: int, severity: str | None) -> None:
    finding = FewTestSamples()(subject_of(count, wrong))
    assert (finding and finding.severity) == severity


def test_a_high_error_on_both_sides_needs_more_samples() -> None:
    assert FewTestSamples()(subject_of(90, 45, 500)).severity == "wrong"
    assert FewTestSamples()(subject_of(200, 100, 500)).severity == "suspect"
    assert FewTestSamples()(subject_of(400, 200, 500)) is None


def test_numbers() -> None:
    finding = FewTestSamples()(subject_of(30, 1))
    interval = proportion_interval(1, 30)
    assert finding.evidence[0].interval == interval
    # The gap of 3.3 points must be told from half a point: 2.83 points instead of 8.6.
    half = (interval.high - interval.low) / 2
    exact = 30 * (half / (1 / 30 - 0.005)) ** 2
    assert exact <= finding.evidence[-1].value < exact + 10  # two digits, rounded up
    assert finding.evidence[-1].value % 10 == 0
    needed = f"about {finding.evidence[-1].value:g} "
    assert needed in finding.sentences[0]
    assert needed in finding.advice[0].text
    assert "14 points" in finding.sentence  # 17.2 - 3.3 = 13.9: an upper end rounds up


def test_one_sample_has_no_interval() -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    subject = Subject(nn.Linear(2, 1), "mse", (x, x[:, :1]), (x[:1], x[:1, :1]))
    finding = FewTestSamples()(subject)
    assert finding.severity == "wrong"
    assert all(row.value < 1e9 for row in finding.evidence)


@pytest.mark.parametrize("case", CASES)
def test_survives_every_case(case: str) -> None:
    finding = FewTestSamples()(CASES[case](torch.float32))
    assert finding is None or finding.sentence.endswith(".")


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("table", "regression"), ("sequence", "regression")],
)
def test_plant(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task).replace(epochs=3)
    assert FewTestSamples()(FewTestSamples.plant(recipe, seed=1)) is not None
