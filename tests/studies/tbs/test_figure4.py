"""Figure 4 of Taylor Based Sampling: AEG, AEL, maps and curves."""

import pytest
import torch

from mindgap.studies import TbsFigure4
from mindgap.studies.tbs.figure4 import _sums


def test_sums_of_a_map() -> None:
    change = torch.zeros(2, 10, 10, dtype=torch.float64)
    change[:, 0, :] = 1.0
    change[:, 5, :5] = -0.5
    gain, loss, net, _, _, better, share = _sums(change)
    assert (gain, loss, net) == pytest.approx((0.1, 0.025, 0.075))
    assert better == pytest.approx(10)
    assert share == pytest.approx(100)


def test_figure_has_maps_in_their_axes_and_three_curves() -> None:
    study = TbsFigure4().tiny()
    found = [(trial, study.run(trial)) for trial in study.trials()]
    table = study.summarize(found)
    kinds = [chart.kind for chart in table.charts]
    assert kinds == ["heatmap"] * 3 + ["line"] * 3
    interest = torch.tensor(table.charts[0].z)
    assert float(interest.max()) <= 0.1
    # Rows are eta0 and columns u0; Df is large at small u0.
    assert float(interest[-1, 0]) > float(interest[-1, -1])
    truth = table.charts[3].series[0]
    assert truth.name == "u, true"
    assert len(truth.x) == len(truth.y) == 51
