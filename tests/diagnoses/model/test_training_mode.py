"""Training mode: only layers that differ count, and both modes are compared without a trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses import TrainingMode
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


@pytest.mark.parametrize(("kind", "task"), [("image", "classification"), ("table", "regression")])
def test_dropout_left_on_is_found(kind: str, task: str) -> None:
    subject = TrainingMode.plant(healthy_recipe(kind, task), seed=1)
    finding = TrainingMode()(subject)
    assert finding.severity == "suspect"
    better, worse = (row.value for row in finding.evidence[:2])
    assert worse > better
    assert subject.model.training
    exec(finding.advice[0].code, {"model": subject.model})
    assert TrainingMode()(subject) is None


def test_error_is_that_of_evaluation_mode() -> None:
    subject = TrainingMode.plant(healthy_recipe("image"), seed=0)
    finding = TrainingMode()(subject)
    assert finding.evidence[0].value == pytest.approx(subject.mean_error("test"))


def test_a_fresh_model_without_such_layers_is_fine() -> None:
    subject = fit(healthy_recipe("table").replace(epochs=1)).subject()
    subject.model.train()
    assert TrainingMode()(subject) is None


def test_dropout_of_zero_does_not_matter() -> None:
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Dropout(0.0), nn.Linear(2, 1))
    assert TrainingMode()(Subject(model, "mse", (x, x[:, :1]))) is None


def test_harmless_modes_are_a_note() -> None:
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(1e-6))
    subject = Subject(model, "cross_entropy", (x, (x[:, 0] > 0).long()))
    finding = TrainingMode()(subject)
    assert finding.severity == "note"
    assert "0.0 %" in finding.sentence


def test_statistics_of_batch_norm_do_not_move() -> None:
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    before = model[1].running_mean.clone()
    assert TrainingMode()(Subject(model, "mse", (x, x[:, :1]))) is not None
    assert torch.equal(model[1].running_mean, before)
    assert int(model[1].num_batches_tracked) == 0
