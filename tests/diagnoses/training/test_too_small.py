"""Too small: two and three hidden units, wide nets, nets that were only stopped early."""

from __future__ import annotations

import pytest
from healthy import healthy

from mindgap.diagnoses.diagnose import diagnose
from mindgap.diagnoses.training.too_small import TooSmall
from mindgap.diagnoses.training.under_trained import UnderTrained
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit

KINDS = [
    ("image", "classification"),
    ("table", "classification"),
    ("table", "regression"),
    ("sequence", "classification"),
    ("sequence", "regression"),
]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found_and_healthy_nets_are_not(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task, seed=1)  # type: ignore[arg-type]
    assert TooSmall()(healthy(kind, task)) is None
    finding = TooSmall()(TooSmall.plant(recipe, seed=1))
    assert finding is not None
    assert finding.severity == "wrong"
    assert "too small" in finding.sentence


@pytest.mark.parametrize("kind", ["image", "sequence"])
def test_three_hidden_units_are_found(kind: str) -> None:
    subject = TooSmall.plant(healthy_recipe(kind), seed=2, strength=0.5)  # type: ignore[arg-type]
    found = diagnose(subject, diagnoses=["too-small", "under-trained", "over-fitting"]).findings
    assert found[0].name == "too-small"


def test_a_net_that_was_stopped_early_is_not_small() -> None:
    assert TooSmall()(UnderTrained.plant(healthy_recipe("image"))) is None


def test_frozen_weights_are_named() -> None:
    subject = fit(healthy_recipe("image").replace(epochs=0)).subject()
    for parameter in list(subject.model.parameters())[:-1]:
        parameter.requires_grad_(False)
    finding = TooSmall()(subject)
    assert finding.sentences[0] == (
        "It has 4,810 weights, 10 of which are trained. 1000 more steps hardly change the loss."
    )
    assert finding.advice[0].code == "model.requires_grad_(True)"
