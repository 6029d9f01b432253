"""Under-trained: nets that were stopped early, healthy nets, logits that only shrink."""

from __future__ import annotations

import pytest
import torch
from healthy import healthy
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses.confidence.over_confidence import scaled
from mindgap.diagnoses.training.under_trained import UnderTrained, closed
from mindgap.ops.evidence.fit import Fit
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.short_run import short_run

KINDS = [
    ("image", "classification"),
    ("table", "classification"),
    ("table", "regression"),
    ("sequence", "classification"),
    ("sequence", "regression"),
]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found_and_healthy_nets_are_not(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task, seed=3)  # type: ignore[arg-type]
    assert UnderTrained()(healthy(kind, task)) is None
    finding = UnderTrained()(UnderTrained.plant(recipe, seed=3))
    assert finding is not None
    assert finding.severity == "wrong"
    assert finding.p_value < 3e-4
    assert "more steps" in finding.sentence
    assert "scheduler" in finding.advice[0].code


def test_shrinking_logits_is_no_learning() -> None:
    subject = healthy("image")
    plain, large = short_run(subject), short_run(scaled(subject, 20.0))
    assert large.before.mean() < 5 * plain.before.mean()  # the loss itself is twenty times larger
    assert UnderTrained()(scaled(subject, 20.0)) is None


def test_share_of_the_way() -> None:
    run = short_run(Subject(nn.Linear(1, 1), "mse", (torch.ones(80, 1), torch.ones(80, 1))))
    half = closed(Fit(0.2, 0.1, 0.0, True), run)
    assert half == pytest.approx(2 * min(run.fall, run.test_fall))


def test_the_model_is_left_as_it_was() -> None:
    subject = UnderTrained.plant(healthy_recipe("table"))
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    first = UnderTrained()(subject)
    assert all(
        torch.equal(before[name], value) for name, value in subject.model.state_dict().items()
    )
    again = UnderTrained()(UnderTrained.plant(healthy_recipe("table")))
    assert first == again
