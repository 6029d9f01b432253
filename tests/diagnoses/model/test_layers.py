"""Layers that do nothing, and features that vary along a line."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.diagnoses import IdleLayer, RankCollapse
from mindgap.diagnoses.model.idle_layer import layer_changes
from mindgap.diagnoses.model.rank_collapse import directions, layer_directions


class Residual(nn.Module):
    """A branch next to a skip, times a factor."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.inner, self.head, self.share = nn.Linear(6, 6), nn.Linear(6, 6), share

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs + self.share * self.inner(inputs))


def subject(net: nn.Module, width: int = 6) -> Subject:
    torch.manual_seed(0)
    x = torch.randn(60, width)
    return Subject(net.double(), "cross_entropy", (x.double(), torch.arange(60) % 6))


def test_the_change_is_that_of_a_constant_branch() -> None:
    torch.manual_seed(1)
    net = Residual(0.5)
    case = subject(net)
    with torch.no_grad():
        x = case.train.take(torch.arange(60)).inputs[0]
        branch = net.inner(x)
        clean = net(x)
        moved = net.head(x + 0.5 * branch.mean(0))
        wanted = (moved - clean).norm() / (clean - clean.mean(0)).norm()
    assert layer_changes(case)["inner"] == pytest.approx(float(wanted), rel=1e-9)
    assert layer_changes(case)["head"] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(("share", "idle"), [(0.0, True), (1e-4, True), (1.0, False)])
def test_a_branch_without_effect_is_named(share: float, idle: bool) -> None:
    found = IdleLayer()(subject(Residual(share)))
    assert (found is not None) == idle
    if found is not None:
        assert "'inner'" in found.sentence
        assert found.severity == "note"


def test_constant_outputs_and_few_samples_say_nothing_about_layers() -> None:
    net = nn.Linear(6, 6)
    nn.init.zeros_(net.weight)
    assert layer_changes(subject(net)) == {}
    few = Subject(nn.Linear(2, 2), "cross_entropy", (torch.eye(2), torch.tensor([0, 1])))
    assert IdleLayer()(few) is None


def test_directions_equal_eigenvalues_of_the_covariance() -> None:
    torch.manual_seed(2)
    for shape in ((30, 7), (7, 30)):
        rows = torch.randn(shape).double() @ torch.diag(torch.rand(shape[1]).double())
        values = torch.linalg.eigvalsh(rows.T.cov(correction=0))
        wanted = values.sum() ** 2 / values.square().sum()
        assert directions(rows) == pytest.approx(float(wanted), rel=1e-9)
    assert directions(torch.ones(5, 3)) == 0.0


def test_a_projection_onto_a_line_is_found_and_narrow_layers_are_not() -> None:
    torch.manual_seed(3)
    line = nn.Linear(16, 16)
    line.weight.data.copy_(torch.ones(16, 1) @ torch.randn(1, 16))
    collapsed = subject(nn.Sequential(line, nn.Linear(16, 8)), width=16)
    assert layer_directions(collapsed)["1"] == pytest.approx(1.0)
    found = RankCollapse()(collapsed)
    assert found is not None
    assert found.severity == "suspect"  # there are no test data to compare on
    healthy = subject(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 8)), width=16)
    assert RankCollapse()(healthy) is None
    narrow = subject(nn.Sequential(nn.Linear(16, 1), nn.Linear(1, 8)), width=16)
    assert RankCollapse()(narrow) is None


def test_few_classes_need_few_directions() -> None:
    line = nn.Linear(8, 8)
    line.weight.data.fill_(1.0)
    x = torch.randn(20, 8)
    few = Subject(nn.Sequential(line, nn.Linear(8, 3)), "cross_entropy", (x, torch.arange(20) % 3))
    assert RankCollapse()(few) is None
