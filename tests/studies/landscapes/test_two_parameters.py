"""The slides' surface against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mindgap.core import Trial
from mindgap.studies.landscapes.two_parameters import TwoParameterSurface, slide_data, surface_of


def test_the_surface_is_that_of_the_slides() -> None:
    random = np.random.RandomState(42)
    x = np.abs(random.randn(30) + 1)
    y = 2 * x + 0.5 * random.randn(30)
    axis = np.linspace(-2, 3, 6)
    found = surface_of(*slide_data(), torch.from_numpy(axis))
    for row, w2 in enumerate(axis):
        for column, w1 in enumerate(axis):
            loss = np.mean((y - w2 * np.maximum(w1 * x, 0)) ** 2)
            assert found[row, column] == pytest.approx(loss, rel=1e-12)
    assert np.ptp(found[:, :3]) == pytest.approx(0, abs=1e-12)  # the plateau


def test_batches_differ_as_sampling_without_replacement_says() -> None:
    study = TwoParameterSurface(points=5, batches=400)
    for size in (10, 1):
        record = study.run(Trial(parameters={"batch_size": size}))
        assert record["spread"] == pytest.approx(record["predicted"], rel=0.15)
        assert len(record["slopes"]) == 400


def test_the_whole_data_set_is_one_batch() -> None:
    study = TwoParameterSurface().tiny()
    records = [(trial, study.run(trial)) for trial in study.trials()]
    x, y = slide_data()
    whole = records[0][1]
    assert whole["slopes"] == [pytest.approx(x @ y / (x @ x))]
    assert whole["predicted"] == whole["spread"] == 0
    table = study.summarize(records)
    assert [chart.kind for chart in table.charts] == ["surface", "heatmap", *["surface"] * 3]
