"""Dead units: a cause where the model does not fit, a note where it does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from healthy import healthy
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.diagnoses import DeadUnits
from mindgap.studies.diagnoses.healthy import healthy_recipe


class Functional(nn.Module):
    def __init__(self, dead: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 20), nn.Linear(20, 1)
        with torch.no_grad():
            self.first.bias[:dead] = -99.0

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(F.relu(self.first(inputs)))


def subject_of(model: nn.Module) -> Subject:
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    return Subject(model, "mse", (x[:200], x[:200, :1]), (x[200:], x[200:, :1]))


@pytest.mark.parametrize(("dead", "found"), [(0, False), (10, False), (13, True), (20, True)])
def test_counts_units_of_functions(dead: int, found: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        finding = DeadUnits()(subject_of(Functional(dead)))
    assert (finding is not None) == found
    if finding is not None:
        assert f"Of the 20 units of layer 'Functional', {dead} never fire." == finding.sentence


def test_a_model_that_fits_gets_a_note() -> None:
    model = Functional(18)
    with torch.no_grad():
        model.first.weight[18:] = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        model.first.bias[18:] = 0
        model.second.weight.zero_()
        model.second.weight[0, 18:] = torch.tensor([1.0, -1.0])
        model.second.bias.zero_()
    subject = subject_of(model)
    assert subject.mean_loss("test") < 1e-12
    assert DeadUnits()(subject).severity == "note"


@pytest.mark.parametrize(("dead", "found"), [(80, False), (88, True)])
def test_a_wide_layer_may_lose_more(dead: int, found: bool) -> None:
    """Twelve of a hundred units are left: enough for one output, but beyond healthy nets."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 1))
    nn.init.constant_(model[0].bias, 1.0)
    with torch.no_grad():
        model[0].bias[:dead] = -99.0
    assert (DeadUnits()(subject_of(model)) is not None) == found


def test_saturated_units_are_named_as_such() -> None:
    model = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 1))
    with torch.no_grad():
        model[0].weight.mul_(1e-3)
        model[0].bias.fill_(9.0)
    finding = DeadUnits()(subject_of(model))
    assert "saturated" in finding.sentence
    assert finding.severity == "wrong"


def test_units_that_were_alive_at_first_may_have_died_of_large_steps() -> None:
    subject = subject_of(Functional(20))
    for dead, cause in [(10, "learning-rate-too-high"), (13, "")]:
        start = Functional(dead).state_dict()
        known = Subject(subject.model, "mse", subject.train, subject.test, initial=start)
        assert DeadUnits()(known).explained_by == cause
    assert DeadUnits()(subject).explained_by == ""


def test_without_test_data_it_is_a_suspicion() -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    assert DeadUnits()(Subject(Functional(20), "mse", (x, x[:, :1]))).severity == "suspect"


@pytest.mark.parametrize(
    ("kind", "task"),
    [("image", "classification"), ("table", "regression"), ("sequence", "classification")],
)
def test_healthy_nets_are_not_accused(kind: str, task: str) -> None:
    finding = DeadUnits()(healthy(kind, task))
    assert finding is None or finding.severity == "note"


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plant(kind: str) -> None:
    finding = DeadUnits()(DeadUnits.plant(healthy_recipe(kind), seed=1))
    assert finding.severity == "wrong"
    assert finding.evidence[1].value == 2


def test_code_to_paste_runs() -> None:
    model = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 1))
    nn.init.constant_(model[0].bias, -99.0)
    finding = DeadUnits()(subject_of(model))
    exec(finding.advice[0].code, {"model": model, "torch": torch})
    assert DeadUnits()(subject_of(model)) is None
