"""Networks without skips have the same weights; the verdict follows from the surfaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mindgap.core import Trial
from mindgap.studies.landscapes.skip_connections import SkipConnectionsLandscape, network


def test_cut_skips_leave_the_residual_alone() -> None:
    plain, residual = network(8, 2, False), network(8, 2, True)
    plain.load_state_dict(residual.state_dict())
    maps = torch.rand(2, 2, 8, 8)
    blocks = [net.eval().stages[0][0] for net in (plain, residual)]
    alone = blocks[1].residual(maps)
    assert torch.allclose(blocks[0](maps), torch.relu(alone))
    assert torch.allclose(blocks[1](maps), torch.relu(alone + maps))


def record(heights: np.ndarray) -> dict[str, object]:
    return {"train_loss": 1.0, "test_error": 0.5, "losses": heights.tolist()}


def test_arms_are_compared_in_pairs() -> None:
    study = SkipConnectionsLandscape(depths=(20,), points=5)
    axis = np.linspace(-1, 1, 5)
    bowl = axis[:, None] ** 2 + axis**2 + 0.5
    bumpy = bowl + np.where(np.arange(25).reshape(5, 5) % 2, 1.0, 0.0)
    records = [
        (trial, record((1 + trial.seed) * (bowl if trial["skips"] else bumpy)))
        for trial in study.trials()
    ]
    table = study.summarize(records)
    smooth, rough = table.rows
    assert smooth[4] == smooth[7] == 0
    assert rough[4] > 0.3
    assert rough[7] > 0.3
    assert smooth[9] == pytest.approx(2 * 2.5)
    assert f"minus with: {rough[4]:+.3f}" in table.notes[-2]
    assert "highest loss without" in table.notes[-1]
    assert [chart.kind for chart in table.charts] == ["bar", "surface", "surface"]


def test_trials_share_their_seeds() -> None:
    trials = SkipConnectionsLandscape().trials()
    assert trials[0] == Trial(parameters={"depth": 20, "skips": True}, seed=0)
    assert [trial.seed for trial in trials[:6]] == [0, 1, 2, 0, 1, 2]
