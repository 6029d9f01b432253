"""Probabilities as logits: the loss is recognized by its values, correct pairs are left alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import CASES
from torch import Tensor, nn

from mindgap.core import InputError, Subject
from mindgap.diagnoses import ProbabilitiesAsLogits
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe


def inputs() -> Tensor:
    return torch.randn(60, 2, generator=torch.Generator().manual_seed(0))


def classes(end: nn.Module, loss: object) -> Subject:
    x = inputs()
    torch.manual_seed(1)
    return Subject(nn.Sequential(nn.Linear(2, 3), end), loss, (x, torch.arange(60) % 3))  # type: ignore[arg-type]


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, inputs: Tensor) -> Tensor:
        return self.factor * inputs


def labels(end: nn.Module, loss: object) -> Subject:
    x = inputs()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 2), end)
    return Subject(model, loss, (x, (x > 0).float()), task="multilabel")  # type: ignore[arg-type]


def of_probabilities(output: Tensor, target: Tensor) -> Tensor:
    return F.nll_loss(output.log(), target, reduction="none")


def own_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (classes(nn.Softmax(1), "cross_entropy"), "softmax"),
        (classes(nn.Softmax(1), nn.CrossEntropyLoss()), "softmax"),
        (classes(nn.Softmax(1), own_cross_entropy), "softmax"),
        (classes(nn.Sequential(Times(9), nn.Sigmoid()), "cross_entropy"), "sigmoid"),
        (labels(nn.Sigmoid(), "bce"), "sigmoid"),
        (classes(nn.Identity(), "nll"), "log-probabilities"),
    ],
)
def test_wrong_pairs_are_found(subject: Subject, words: str) -> None:
    finding = ProbabilitiesAsLogits()(subject)
    assert finding.severity == "wrong"
    assert words in finding.sentence


@pytest.mark.parametrize(
    "subject",
    [
        classes(nn.Identity(), "cross_entropy"),
        classes(nn.Sequential(Times(0.1), nn.Sigmoid()), "cross_entropy"),  # may be logits as well
        classes(nn.LogSoftmax(1), "cross_entropy"),
        classes(nn.LogSoftmax(1), "nll"),
        classes(nn.Softmax(1), of_probabilities),
        classes(nn.Sigmoid(), "cross_entropy"),
        labels(nn.Identity(), "bce"),
        labels(nn.Sigmoid(), F.binary_cross_entropy),
    ],
)
def test_right_pairs_are_not(subject: Subject) -> None:
    assert ProbabilitiesAsLogits()(subject) is None


def test_floor_of_the_loss() -> None:
    finding = ProbabilitiesAsLogits()(classes(nn.Softmax(1), "cross_entropy"))
    best = F.cross_entropy(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([0]))
    assert finding.evidence[-1].value == pytest.approx(float(best))


def test_pasted_loss_is_the_right_one() -> None:
    subject = classes(nn.Softmax(1), "cross_entropy")
    scope = {"outputs": subject.outputs(), "labels": subject.targets(), "torch": torch}
    exec(ProbabilitiesAsLogits()(subject).advice[1].code, scope)
    right = F.cross_entropy(subject.model[0](inputs()).detach(), subject.targets())
    assert float(scope["loss"]) == pytest.approx(float(right))


@pytest.mark.parametrize("case", CASES)
def test_every_case(case: str) -> None:
    subject = CASES[case](torch.float32)
    if subject.task == "regression":
        with pytest.raises(InputError):
            ProbabilitiesAsLogits()(subject)
    else:
        assert ProbabilitiesAsLogits()(subject) is None


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plant_comes_first(kind: str) -> None:
    subject = ProbabilitiesAsLogits.plant(healthy_recipe(kind).replace(epochs=3), seed=1)
    names = ["probabilities-as-logits", "constant-predictor", "ignored-class", "dead-units"]
    assert diagnose(subject, diagnoses=names).findings[0].name == "probabilities-as-logits"
