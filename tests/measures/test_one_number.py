"""A model that gives one number per sample is measured like one that gives a column."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject, find
from mindgap.diagnoses import NoiseSensitivity


class Squeezed(nn.Sequential):
    """Ends with ``squeeze(1)``, as many regressions do."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs).squeeze(1)


def both(task: str) -> tuple[Subject, Subject]:
    torch.manual_seed(0)
    inputs = torch.randn(120, 3)
    targets = inputs[:, 0].abs() + inputs[:, 1]
    loss = "mse" if task == "regression" else "bce"
    targets = targets if task == "regression" else (targets > 0.5).float()
    layers = nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)
    kinds = ((Squeezed(*layers), targets), (nn.Sequential(*layers), targets[:, None]))
    first, second = (
        Subject(model, loss, (inputs[:60], y[:60]), (inputs[60:], y[60:])) for model, y in kinds
    )
    return first, second


NAMES = ("compression", "fisher-rao-norm", "linear-regions", "lipschitz-lower-bound", "noise-decay")


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_measures_are_equal(task: str) -> None:
    one, column = both(task)
    for name in NAMES:
        values = [float(find(name)()(subject)) for subject in (one, column)]
        assert values[0] == pytest.approx(values[1], rel=1e-5), name
    assert NoiseSensitivity()(one) == NoiseSensitivity()(column)
