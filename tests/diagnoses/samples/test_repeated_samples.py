"""Repeated samples: counted, listed once, silent on discrete data."""

from __future__ import annotations

import pytest
import torch
from pasting import pasted
from torch import Tensor, nn

from mindgap.core import Finding, Subject
from mindgap.diagnoses import RepeatedSamples
from mindgap.studies.diagnoses.healthy import healthy_recipe


def look(x: Tensor, y: Tensor) -> Finding | None:
    return RepeatedSamples()(Subject(nn.Linear(1, 2), "cross_entropy", (x, y)))


def test_copies_are_listed_without_the_originals() -> None:
    x = torch.cat([torch.arange(900.0), torch.arange(300.0)])[:, None]
    y = torch.cat([torch.arange(900) % 2, torch.arange(300) % 2])
    finding = look(x, y)
    assert finding.severity == "note"
    assert list(finding.suspects.index) == list(range(900, 1200))
    assert list(finding.suspects.columns["copy of"]) == list(range(300))
    scope = pasted(finding, train_inputs=x, train_targets=y)
    assert scope["train_inputs"].flatten().tolist() == list(range(900))


def test_another_target_is_another_sample() -> None:
    x = torch.arange(100.0).repeat(2)[:, None]
    assert look(x, (torch.arange(200) >= 100).long()) is None


def test_discrete_data_are_not_accused() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randint(0, 40, (200, 1), generator=random).float()
    assert look(x, torch.randint(0, 2, (200,), generator=random)) is None


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_found_if_planted(kind: str) -> None:
    finding = RepeatedSamples()(RepeatedSamples.plant(healthy_recipe(kind).replace(epochs=0)))
    assert finding.evidence[0].value == pytest.approx(0.3 / 1.3, abs=0.01)
