"""Under-confidence: planted scales, label smoothing, healthy nets."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from healthy import healthy
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses.confidence.under_confidence import UnderConfidence
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def logits_of(factor: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose true temperature is the factor."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(2000, 3, generator=random)
    labels = torch.multinomial(F.softmax(logits, 1), 1, generator=random).flatten()
    return factor * logits, labels


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_healthy_nets_and_plants(kind: str) -> None:
    recipe = healthy_recipe(kind)  # type: ignore[arg-type]
    spared = UnderConfidence()(healthy(kind))
    assert spared is None or spared.severity == "note"
    finding = UnderConfidence()(UnderConfidence.plant(recipe, seed=3))
    assert finding is not None
    assert finding.severity == "wrong"
    assert finding.p_value < 1e-6
    assert "but right" in finding.sentence


def test_label_smoothing_is_said_and_not_accused() -> None:
    recipe = healthy_recipe("image").replace(loss=nn.CrossEntropyLoss(label_smoothing=0.1))
    finding = UnderConfidence()(fit(recipe, seed=0, evaluate_every=0).subject())
    assert finding is None or finding.severity != "wrong" or "Label smoothing" in str(finding)


def test_scale_of_the_logits_decides() -> None:
    low, right = (
        Subject(nn.Identity(), "cross_entropy", logits_of(factor, seed=1), logits_of(factor))
        for factor in (0.3, 1.0)
    )
    assert UnderConfidence()(right) is None
    finding = UnderConfidence()(low)
    assert finding is not None
    assert finding.severity == "wrong"
    assert finding.evidence[0].value < -0.1
