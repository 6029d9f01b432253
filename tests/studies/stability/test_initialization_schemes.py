"""Predicted next to measured variance."""

from __future__ import annotations

import pytest
import torch

from mindgap.core.study import Trial
from mindgap.studies.stability.initialization_schemes import InitializationSchemes, deviation


@pytest.mark.parametrize("scheme", ["xavier-uniform", "orthogonal", "lsuv", "torch's default"])
def test_prediction_is_close_at_a_small_depth(scheme: str) -> None:
    study = InitializationSchemes(
        depth=4, narrow=256, wide=288, seeds=1, epochs=1, trained_width=4, most_draws=50
    )
    with torch.random.fork_rng():
        record = study.run(Trial(parameters={"activation": "tanh", "scheme": scheme}))
    assert deviation(record, "forward") < 0.1
    assert deviation(record, "backward") < 0.1
