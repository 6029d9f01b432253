"""Figure 3 of Taylor Based Sampling: curves and counts of the points drawn."""

import pytest
import torch

from mindgap.studies import TbsFigure3
from mindgap.studies.tbs.table4 import RESAMPLED


def test_counts_and_curves() -> None:
    study = TbsFigure3(draws=10)
    table = study.summarize([(trial, study.run(trial)) for trial in study.trials()])
    rows = {(row[0], row[1]): row for row in table.rows}
    assert rows["tanh", "uniform"][3] == pytest.approx(rows["tanh", "uniform"][2], abs=10)
    assert rows["tanh", "TBS, exact density"][3] > 2 * rows["tanh", "uniform"][3]
    assert rows["Runge", RESAMPLED][6] > 90  # they repeat what is known
    assert rows["Runge", "TBS, weighted mixture"][6] < 40
    for chart in table.charts:
        series = {line.name: line for line in chart.series}
        assert len(series["f"].x) == 201
        assert max(series["Df / max Df"].y) == 1
        assert len(series["TBS, exact density: on f"].x) == 8


def test_share_of_the_interval_is_that_of_a_fine_grid() -> None:
    study = TbsFigure3(draws=2)
    record = study.run(study.trials()[1])
    x = torch.linspace(-1, 1, 100_001, dtype=torch.float64)
    slope = 10 / torch.cosh(10 * x) ** 2
    curve = -20 * torch.tanh(10 * x) * slope
    interest = 1e-3 * slope**2 + 0.5e-6 * curve**2
    assert record["steep"] == pytest.approx(
        float((interest > interest.mean()).double().mean()), abs=1e-3
    )
