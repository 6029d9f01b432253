"""The slope in cells: slopes read from the data, and where it is undefined."""

import pytest
import torch
from torch import nn

from mindgap.core.subject import Subject
from mindgap.measures import SlopeInCells
from mindgap.ops.taylor.derivative_bound import derivative_bound


def test_measure_reads_slopes_from_the_data() -> None:
    x = torch.linspace(-1, 1, 41, dtype=torch.float64)[:, None]
    model = nn.Linear(1, 1).double()
    with torch.no_grad():
        model.weight.fill_(-3.0)
    found = SlopeInCells()(Subject(model, "mse", (x, 2 * x)))
    expected = (
        float(derivative_bound(x.flatten(), torch.full((41,), 2.0), 3.0, low=-1, high=1).sum()) / 2
    )
    assert found.value == pytest.approx(expected)
    assert found.status == "heuristic"
    assert found.terms["lipschitz"] == pytest.approx(3.0)


def test_measure_finds_the_gap_in_the_data() -> None:
    x = torch.cat([torch.linspace(-1, 0, 20), torch.linspace(0.8, 1, 20)]).double()[:, None]
    found = SlopeInCells()(Subject(nn.Linear(1, 1).double(), "mse", (x, x)))
    assert found.details["worst_input"] == pytest.approx(0.8) or found.details[
        "worst_input"
    ] == pytest.approx(0.0)


def test_measure_is_undefined_with_reasons() -> None:
    wide = Subject(nn.Linear(2, 1), "mse", (torch.rand(9, 2), torch.rand(9, 1)))
    assert SlopeInCells()(wide).reason == "needs one input and one output"
    classes = Subject(nn.Linear(1, 2), "cross_entropy", (torch.rand(9, 1), torch.arange(9) % 2))
    assert "needs a regression" in SlopeInCells()(classes).reason
    same = Subject(nn.Linear(1, 1), "mse", (torch.ones(9, 1), torch.rand(9, 1)))
    assert "three different inputs" in SlopeInCells()(same).reason
