"""Contradictory samples: counted by hand, natural ones are a note."""

from __future__ import annotations

import pytest
import torch
from pasting import pasted
from torch import Tensor, nn

from mindgap.core import Finding, Subject
from mindgap.diagnoses import ContradictorySamples
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def look(x: Tensor, y: Tensor, test: tuple[Tensor, Tensor] | None = None) -> Finding | None:
    loss = "mse" if y.is_floating_point() else "cross_entropy"
    return ContradictorySamples()(Subject(nn.Linear(1, 3), loss, (x, y), test))


def test_share_is_what_cannot_be_fitted() -> None:
    x = torch.tensor([0.0, 0, 0, 1, 1, 2, 3, 4, 5, 6])[:, None]
    y = torch.tensor([0, 0, 1, 2, 1, 0, 1, 2, 0, 1])
    finding = look(x, y)
    assert finding.evidence[0].value == pytest.approx(0.2)
    assert sorted(finding.suspects.index) == [0, 1, 2, 3, 4]
    same = dict(
        zip(finding.suspects.index, finding.suspects.columns["same inputs as"], strict=True)
    )
    assert (same[2], same[4]) == (0, 3)


def test_targets_of_a_regression_may_differ_a_bit() -> None:
    x = torch.arange(50.0).repeat(2)[:, None]
    y = torch.cat([torch.arange(50.0), torch.arange(50.0) + 0.5])[:, None].repeat(1, 3)
    assert look(x, y) is None
    y[50:60] += 40
    finding = look(x, y)
    assert finding.evidence[0].value == pytest.approx(0.1)


def test_inputs_that_do_not_determine_the_label_are_a_note() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randint(0, 4, (600, 1), generator=random).float()
    y = (x[:, 0] > 1).long() ^ (torch.rand(600, generator=random) < 0.2).long()
    finding = look(x[:400], y[:400], (x[400:], y[400:]))
    assert finding.severity == "note"
    assert look(x[:400], y[:400]).severity == "wrong"  # nothing tells without test data


@pytest.mark.parametrize(
    ("kind", "task"), [("image", "classification"), ("sequence", "regression")]
)
def test_found_if_planted_and_only_then(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task).replace(epochs=0)
    finding = ContradictorySamples()(ContradictorySamples.plant(recipe, 0, 0.5))
    assert finding.severity == "wrong"
    assert finding.evidence[0].value == pytest.approx(0.05 / 1.05, abs=0.01)
    assert ContradictorySamples()(fit(recipe).subject()) is None


def test_advised_code_leaves_them_out() -> None:
    x, y = torch.tensor([0.0, 0, 1, 2])[:, None], torch.tensor([0, 1, 2, 0])
    finding = look(x, y)
    scope = pasted(finding, train_inputs=x, train_targets=y)
    assert scope["train_targets"].tolist() == [2, 0]
