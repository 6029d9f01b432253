"""The rival: who wins where, and who is not compared."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.nets import MLP
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit
from mindgap.training.rival import _against_rival, attainable


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_beats_a_linear_model_and_not_a_good_net(task: str) -> None:
    recipe = healthy_recipe("table", task)
    outputs = 3 if task == "classification" else 1
    plain = recipe.replace(model=lambda: MLP((10, outputs)))
    assert attainable(fit(plain, seed=0, evaluate_every=0).subject()).under
    good = _against_rival(fit(recipe, seed=0, evaluate_every=0).subject())
    assert not good.under
    assert good.p_value == 1.0 or good.p_value > 0.01


def test_many_labels() -> None:
    x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    y = torch.stack([x[:, 0] * x[:, 1] > 0, x[:, 2] > 0], 1).float()
    subject = Subject(nn.Linear(4, 2), "bce", (x[:400], y[:400]), (x[400:], y[400:]))
    found = _against_rival(subject)
    assert found.under
    assert 0 < found.reference < found.model < 1


def test_does_not_touch_the_global_generator() -> None:
    subject = fit(healthy_recipe("table"), seed=0, evaluate_every=0).subject()
    state = torch.get_rng_state()
    _against_rival(subject)
    assert torch.equal(state, torch.get_rng_state())
