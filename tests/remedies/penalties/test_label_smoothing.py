"""Label smoothing is torch's own, in every loop and engine."""

from __future__ import annotations

import pytest
import torch
from cases import recipe
from torch import nn

from mindgap.core.errors import InputError
from mindgap.core.remedy import TrainingState
from mindgap.remedies import LabelSmoothing
from mindgap.training.fit import fit


def test_equals_torchs_own_label_smoothing() -> None:
    ours = fit(recipe(), [LabelSmoothing(share=0.2)], seed=1)
    theirs = fit(recipe(loss=nn.CrossEntropyLoss(label_smoothing=0.2)), seed=1)
    for one, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert ours.history[-1]["running_loss"] == pytest.approx(theirs.history[-1]["running_loss"])
    assert ours.history[-1]["test_loss"] != pytest.approx(theirs.history[-1]["test_loss"])


def test_sample_weights_weigh_the_smoothed_loss() -> None:
    weights = torch.rand(48, generator=torch.Generator().manual_seed(0)) + 0.5
    ours = fit(recipe(sample_weights=weights), [LabelSmoothing(share=0.2)], seed=1)
    loss = nn.CrossEntropyLoss(label_smoothing=0.2)
    theirs = fit(recipe(sample_weights=weights, loss=loss), seed=1)
    for one, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_takes_one_label_per_pixel() -> None:
    random = torch.Generator().manual_seed(0)
    output, target = torch.randn(4, 3, 2, 2, generator=random), torch.zeros(4, 2, 2).long()
    plain = nn.CrossEntropyLoss(reduction="none")
    state = TrainingState(model=nn.Identity(), optimizer=None)
    found = LabelSmoothing(share=0.3).losses(
        state, lambda o, t: plain(o, t).flatten(1).mean(1), output, target
    )
    wanted = nn.CrossEntropyLoss(reduction="none", label_smoothing=0.3)(output, target)
    assert torch.allclose(found, wanted.flatten(1).mean(1))


def test_refuses_a_regression() -> None:
    plan = recipe()
    numbers = plan.replace(train=(plan.train[0], plan.train[0][:, :3]), test=None, loss="mse")
    with pytest.raises(
        InputError, match="'label-smoothing' must train a classification, got a reg"
    ):
        fit(numbers, [LabelSmoothing()])
