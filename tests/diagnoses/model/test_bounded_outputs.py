"""Bounded outputs: last activations whose range the targets leave, and models that only look so."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Finding, Subject
from mindgap.diagnoses import BoundedOutputs
from mindgap.diagnoses.diagnose import diagnose


def inputs() -> Tensor:
    return torch.randn(200, 2, generator=torch.Generator().manual_seed(0))


def asked(model: nn.Module, targets: Tensor, loss: object = "mse") -> Finding | None:
    return BoundedOutputs()(Subject(model, loss, (inputs(), targets)))  # type: ignore[arg-type]


def net(*end: nn.Module, outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs), *end)


ABOVE, BELOW = (-torch.inf, 0.0), (0.0, torch.inf)


@pytest.mark.parametrize(
    ("end", "bounds", "words"),
    [
        (nn.ReLU(), BELOW, "cannot fall below 0, as after a ReLU, but 50 % of"),
        (nn.Softplus(), BELOW, "cannot fall below 0, as after a ReLU, but 50 % of"),
        (nn.LogSigmoid(), ABOVE, "cannot rise above 0, but 50 % of"),
        (nn.Sigmoid(), (0.0, 1.0), "stay between 0 and 1, as after a sigmoid, but 82 % of"),
        (nn.Tanh(), (-1.0, 1.0), "stay between -1 and 1, as after a tanh, but 55 % of"),
        (nn.ELU(), (-1.0, torch.inf), "cannot fall below -1, as after an ELU, but 22 % of"),
    ],
)
def test_ranges_are_named_with_the_targets_beyond(
    end: nn.Module, bounds: tuple[float, float], words: str
) -> None:
    targets = 2 * inputs()[:, :1]
    finding = asked(net(end), targets)
    assert words in finding.sentence
    beyond = (targets < bounds[0]) | (targets > bounds[1])
    assert finding.evidence[0].value == pytest.approx(float(beyond.float().mean()))
    scope = {"model": net(end), "train_targets": targets, "test_targets": targets}
    for advice in finding.advice:
        exec(advice.code, scope)
    assert asked(scope["model"], targets) is None
    assert len(finding.advice) == 1 + ("between" in words)
    if "between" in words:
        assert asked(net(end), scope["train_targets"]) is None


def test_the_best_outputs_in_the_range_cost_what_is_told() -> None:
    targets = 2 * inputs()[:, :1]
    finding = asked(net(nn.ReLU()), targets)
    lost = targets.clamp(max=0).square().mean() / targets.var(correction=0)
    assert finding.evidence[1].value == pytest.approx(float(lost), rel=1e-5)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (net(nn.ReLU()), inputs()[:, :1].abs()),  # positive targets with a positive output
        (net(nn.ReLU()), inputs()[:, :1].abs() - 0.01),  # as a little noise makes them
        (net(nn.Tanh()), inputs()[:, :1].sin()),
        (net(), inputs()[:, :1]),
        (net(nn.LayerNorm(1)), inputs()[:, :1]),  # always zero
        (net(nn.Softmax(1)), 2 * inputs()[:, :1]),  # always one
        (net(nn.Linear(1, 4), nn.LayerNorm(4), nn.Linear(4, 1)), inputs()[:, :1]),
        (net(nn.Sigmoid(), nn.Linear(1, 1)), 9 * inputs()[:, :1]),
        (nn.Sequential(nn.Linear(2, 1), nn.Threshold(-9.0, 0.0)), inputs()[:, :1]),
    ],
)
def test_models_that_reach_their_targets_are_none(model: nn.Module, targets: Tensor) -> None:
    assert asked(model, targets) is None


def test_outputs_that_are_positive_by_chance_are_none() -> None:
    model = nn.Linear(2, 1)
    nn.init.constant_(model.bias, 20.0)
    assert asked(model, inputs()[:, :1]) is None


class Stump:
    """A tree of one split, as an estimator has it: without weights."""

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return (rows[:, 0] > 0).astype(float)


def test_trees_stay_within_their_training_targets() -> None:
    subject = Subject(Stump(), "mse", (inputs(), 2 * inputs()[:, 0]))
    told = diagnose(subject, diagnoses=["bounded-outputs"])
    assert not told.findings
    assert "must have weights" in told.checked[0].reason


def test_outputs_that_all_lie_on_the_bound_are_asked_for_more() -> None:
    for end in (nn.Sigmoid(), nn.ReLU()):
        model = net(end)
        nn.init.constant_(model[2].bias, -99.0)
        finding = asked(model, inputs()[:, :1] - 300)
        assert finding.evidence[0].value == 1.0


def test_a_loss_in_other_units_is_asked_itself() -> None:
    targets = 300 + 9 * inputs()[:, :1]
    scaled = lambda output, target: (300 + 30 * output - target).square()  # noqa: E731
    assert asked(net(nn.Tanh()), targets, scaled) is None
    assert asked(net(nn.Tanh()), targets) is not None


def test_logits_after_a_tanh_keep_the_loss_above_a_floor() -> None:
    labels = torch.arange(200) % 5
    finding = asked(net(nn.Tanh(), outputs=5), labels, "cross_entropy")
    best = 2.0 * nn.functional.one_hot(labels, 5) - 1
    floor = float(nn.functional.cross_entropy(best, labels))
    assert finding.evidence[0].value == pytest.approx(floor)
    assert "as after a tanh, but the loss takes logits: it cannot fall below 0.43" in str(finding)
    yes = (inputs() > 0).float()
    assert asked(net(nn.ReLU(), outputs=2), yes, "bce") is not None  # never sure of a no
    # A ReLU leaves classes enough room; a sigmoid belongs to another diagnosis.
    for end in (nn.ReLU(), nn.Sigmoid(), nn.Identity(), nn.Softmax(1)):
        assert asked(net(end, outputs=5), labels, "cross_entropy") is None


def test_it_explains_what_it_looks_like() -> None:
    x = inputs()
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
    targets = x[:, :1]
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0]]))
        model[0].bias.zero_()
    subject = Subject(model, "mse", (x[:120], targets[:120]), (x[120:], targets[120:]))
    names = ["bounded-outputs", "too-small", "under-trained", "gradient-masking"]
    findings = diagnose(subject, diagnoses=names).findings
    assert findings[0].name == "bounded-outputs"
    assert {row.explained_by for row in findings[1:]} <= {"bounded-outputs"}


def test_logits_that_are_stuck_at_zero_behind_a_relu_are_named() -> None:
    labels = torch.arange(200) % 3
    model = net(nn.ReLU(), outputs=3)
    with torch.no_grad():
        model[2].bias.copy_(torch.tensor([9.0, -9.0, 9.0]))
    finding = asked(model, labels, "cross_entropy")
    assert finding is not None
    assert finding.sentence == (
        "The outputs cannot fall below 0, as after a ReLU, and that of class '1' is always 0."
    )
    with torch.no_grad():
        model[2].bias.fill_(0.5)  # cut now and then, but none for good
    assert asked(model, labels, "cross_entropy") is None
